// What an active disk tier costs requests that are answered from the engine's own state: two
// servers, one with the tier and one without, asked the same in the order A B B A. Both are started
// anew several times, because where a process finds its memory moves its speed.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/http_client.h"
#include "bench/prompts.h"
#include "bench/server_process.h"
#include "bench/statistics.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr std::uint64_t kPromptSeed = 21;
constexpr TokenCount kSpareContextTokens = 256;
constexpr int kWarmUpRequests = 2;

struct OverheadOptions {
  std::string model;
  std::string work;
  TokenCount prompt_tokens = 1000;
  TokenCount reply_tokens = 16;
  int pairs = 40;    // in all
  int restarts = 8;  // that share them
  bool tiny = false;
};

// One of the two servers, and what all servers of its kind answered, in order.
struct Arm {
  std::string disk;  // value of --kv-cache-disk
  std::unique_ptr<ServerProcess> server;
  std::vector<Completion> completions;
};

struct Overhead {
  std::vector<double> cpu_ratios;  // with the tier / without it, one for each pair
  std::vector<double> wall_ratios;
  double cpu_ms_with = 0;  // medians
  double cpu_ms_without = 0;
  double wall_ms_with = 0;
  double wall_ms_without = 0;
};

Result<OverheadOptions> ReadOptions(const std::vector<std::string>& arguments) {
  OverheadOptions options;
  CLI::App app("cost of the disk tier for warm requests", "skippy bench l3-overhead");
  app.add_option("--model", options.model, "GGUF; default: the demo model");
  app.add_option("--tokens", options.prompt_tokens, "prompt length")->check(CLI::Range(2, 1 << 20));
  app.add_option("--reply", options.reply_tokens, "reply length")->check(CLI::Range(1, 4096));
  app.add_option("--pairs", options.pairs, "pairs of requests")->check(CLI::Range(1, 10000));
  app.add_option("--restarts", options.restarts, "fresh servers that share the pairs")
      ->check(CLI::Range(1, 10000));
  app.add_option("--work", options.work, "folder for cache roots");
  app.add_flag("--tiny", options.tiny, "few pairs of short requests");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.tiny) {
    options.pairs = 2;
    options.restarts = 1;
    options.prompt_tokens = 100;
    options.reply_tokens = 2;
  }
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, FindDemoModel());
  }
  return options;
}

// One thread, so that all computing is engine-thread time and none of it is waiting for another.
Status StartServer(const OverheadOptions& options, const Workspace& workspace, Arm* arm) {
  const TokenCount context = options.prompt_tokens + options.reply_tokens + kSpareContextTokens;
  ServerCommand command;
  command.model_path = options.model;
  command.log_path = workspace.path() + "/server.log";
  command.on_one_cpu = true;
  command.flags = {"-c", std::to_string(context), "-np", "1", "-t", "1", "--cache-ram", "0"};
  command.flags.insert(command.flags.end(), {"--kv-cache-disk", arm->disk});
  if (arm->disk != "off") {
    command.flags.insert(command.flags.end(), {"--kv-cache-disk-dir", workspace.path() + "/root",
                                               "--kv-cache-min-free", "1GiB"});
  }
  SKIPPY_ASSIGN_OR_RETURN(arm->server, ServerProcess::Start(command));
  return {};
}

Status Ask(const OverheadOptions& options, const std::vector<Token>& prompt, Arm* arm) {
  SKIPPY_ASSIGN_OR_RETURN(const Completion completion,
                          Complete(arm->server->port(), {prompt, options.reply_tokens}));
  if (completion.computed_tokens != 1 || completion.cached_disk_tokens != 0) {
    return MakeError(ErrorCode::kInternal,
                     fmt::format("a warm request computed {} prompt tokens and took {} from disk",
                                 completion.computed_tokens, completion.cached_disk_tokens));
  }
  arm->completions.push_back(completion);
  return {};
}

Status WarmUp(const OverheadOptions& options, const std::vector<Token>& prompt, Arm* arm) {
  for (int i = 0; i < kWarmUpRequests; ++i) {
    SKIPPY_ASSIGN_OR_RETURN(const Completion ignored,
                            Complete(arm->server->port(), {prompt, options.reply_tokens}));
    if (ignored.prompt_tokens != options.prompt_tokens) {
      return MakeError(ErrorCode::kInternal, "the prompt has another length than was asked for");
    }
  }
  return {};
}

Overhead Compare(const Arm& with, const Arm& without) {
  Overhead out;
  std::vector<double> cpu_with, cpu_without, wall_with, wall_without;
  for (std::size_t i = 0; i < with.completions.size(); ++i) {
    const Completion& a = with.completions[i];
    const Completion& b = without.completions[i];
    cpu_with.push_back(a.engine_cpu_ms);
    cpu_without.push_back(b.engine_cpu_ms);
    wall_with.push_back(a.total_ms);
    wall_without.push_back(b.total_ms);
    out.cpu_ratios.push_back(a.engine_cpu_ms / b.engine_cpu_ms);
    out.wall_ratios.push_back(a.total_ms / b.total_ms);
  }
  out.cpu_ms_with = Median(cpu_with);
  out.cpu_ms_without = Median(cpu_without);
  out.wall_ms_with = Median(wall_with);
  out.wall_ms_without = Median(wall_without);
  return out;
}

std::vector<std::string> Row(const std::string& name, const std::vector<double>& ratios,
                             double with, double without) {
  return {name, fmt::format("{:.3f}", with), fmt::format("{:.3f}", without),
          fmt::format("{:.4f}", Median(ratios)),
          fmt::format("{:.4f} - {:.4f}", Quantile(ratios, 0.1), Quantile(ratios, 0.9))};
}

BenchReport MakeReport(const OverheadOptions& options, const Overhead& overhead) {
  BenchReport report;
  report.name = "l3-overhead";
  report.figure = Median(overhead.cpu_ratios);
  report.unit = "engine CPU time, tier on / off";
  report.goal = "0.95 to 1.05";
  report.inputs = {
      {"model", options.model.substr(options.model.rfind('/') + 1)},
      {"pairs", std::to_string(options.pairs)},
      {"restarts", std::to_string(options.restarts)},
      {"prompt_tokens", std::to_string(options.prompt_tokens)},
      {"reply_tokens", std::to_string(options.reply_tokens)},
      {"computed_prompt_tokens", "1 in every request of both arms"},
      {"wall_ratio", fmt::format("{:.4f}", Median(overhead.wall_ratios))},
      {"wall_ratio_p10_p90", fmt::format("{:.4f} {:.4f}", Quantile(overhead.wall_ratios, 0.1),
                                         Quantile(overhead.wall_ratios, 0.9))},
      {"cpu_ratio_p10_p90", fmt::format("{:.4f} {:.4f}", Quantile(overhead.cpu_ratios, 0.1),
                                        Quantile(overhead.cpu_ratios, 0.9))}};
  report.table = FormatTable(
      {{"median of pairs", "tier on", "tier off", "ratio", "p10 - p90"},
       Row("engine CPU ms", overhead.cpu_ratios, overhead.cpu_ms_with, overhead.cpu_ms_without),
       Row("wall ms", overhead.wall_ratios, overhead.wall_ms_with, overhead.wall_ms_without)});
  return report;
}

// Two fresh servers; `pairs` comparisons.
Status RunPairs(const OverheadOptions& options, int pairs, Arm* with, Arm* without) {
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  SKIPPY_RETURN_IF_ERROR(StartServer(options, *workspace, with));
  SKIPPY_RETURN_IF_ERROR(StartServer(options, *workspace, without));
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> prompt,
                          RandomPrompt(with->server->port(), options.prompt_tokens, kPromptSeed));
  SKIPPY_RETURN_IF_ERROR(WarmUp(options, prompt, with));
  SKIPPY_RETURN_IF_ERROR(WarmUp(options, prompt, without));
  SKIPPY_RETURN_IF_ERROR(with->server->WaitUntilDurable());
  for (int i = 0; i < pairs; ++i) {
    SKIPPY_RETURN_IF_ERROR(Ask(options, prompt, i % 2 == 0 ? with : without));
    SKIPPY_RETURN_IF_ERROR(Ask(options, prompt, i % 2 == 0 ? without : with));
  }
  SKIPPY_RETURN_IF_ERROR(with->server->Stop());
  return without->server->Stop();
}

}  // namespace

Result<BenchReport> RunL3Overhead(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const OverheadOptions options, ReadOptions(arguments));
  Arm with{"256MiB", nullptr, {}};
  Arm without{"off", nullptr, {}};
  const int pairs_each = (options.pairs + options.restarts - 1) / options.restarts;
  for (int left = options.pairs; left > 0; left -= pairs_each) {
    SKIPPY_RETURN_IF_ERROR(RunPairs(options, std::min(left, pairs_each), &with, &without));
  }
  return MakeReport(options, Compare(with, without));
}

}  // namespace skippy::bench
