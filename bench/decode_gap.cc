// What a client that is being answered feels while others restore long prefixes from disk: the gaps
// between its tokens, against the same requests when the same cells are resident already.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <future>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/http_client.h"
#include "bench/prompts.h"
#include "bench/server_process.h"
#include "bench/statistics.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr std::uint64_t kFirstSeed = 4000;
constexpr TokenCount kSpareTokens = 64;

struct GapOptions {
  std::string model;
  std::string work;
  int prefixes = 16;
  TokenCount prefix_tokens = 4000;
  TokenCount reply_tokens = 600;
  int rounds = 3;
  bool tiny = false;
};

Result<GapOptions> ReadOptions(const std::vector<std::string>& arguments) {
  GapOptions options;
  CLI::App app("gaps between tokens beside restores", "skippy bench decode-gap");
  app.add_option("--model", options.model, "GGUF; default: the demo model");
  app.add_option("--prefixes", options.prefixes, "restored at once")->check(CLI::Range(1, 200));
  app.add_option("--tokens", options.prefix_tokens, "of each prefix")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--reply", options.reply_tokens, "of the client that is watched")
      ->check(CLI::Range(8, 1 << 16));
  app.add_option("--rounds", options.rounds, "restarts")->check(CLI::Range(1, 100));
  app.add_option("--work", options.work, "folder for cache roots");
  app.add_flag("--tiny", options.tiny, "one round with short prefixes");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.tiny) {
    options.prefixes = 3;
    options.prefix_tokens = 300;
    options.reply_tokens = 240;
    options.rounds = 1;
  }
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, FindDemoModel());
  }
  return options;
}

class GapRun {
 public:
  GapRun(const GapOptions& options, const Workspace& workspace)
      : options_(options), workspace_(workspace) {}

  // Records all prefixes, one after the other.
  Status Record() {
    SKIPPY_RETURN_IF_ERROR(Start());
    SKIPPY_ASSIGN_OR_RETURN(watched_, RandomPrompt(server_->port(), kSpareTokens / 2, kFirstSeed));
    for (int i = 0; i < options_.prefixes; ++i) {
      SKIPPY_ASSIGN_OR_RETURN(std::vector<Token> prompt,
                              RandomPrompt(server_->port(), options_.prefix_tokens,
                                           kFirstSeed + 1 + static_cast<std::uint64_t>(i)));
      SKIPPY_ASSIGN_OR_RETURN(const Completion cold, Complete(server_->port(), {prompt, 1}));
      if (cold.prompt_tokens != options_.prefix_tokens) {
        return MakeError(ErrorCode::kInternal, "a prefix has another length than was asked for");
      }
      prefixes_.push_back({std::move(prompt), 1});
    }
    SKIPPY_RETURN_IF_ERROR(server_->WaitUntilDurable());
    return server_->Stop();
  }

  // A restart, then the watched client beside all restores, then again beside the residents.
  Status MeasureRound() {
    SKIPPY_RETURN_IF_ERROR(DropPages(workspace_.path() + "/root"));
    SKIPPY_RETURN_IF_ERROR(Start());
    SKIPPY_RETURN_IF_ERROR(Watch(options_.prefix_tokens - kSpareTokens, &restoring_ms_));
    SKIPPY_RETURN_IF_ERROR(Watch(0, &resident_ms_));
    return server_->Stop();
  }

  const std::vector<double>& restoring_ms() const { return restoring_ms_; }
  const std::vector<double>& resident_ms() const { return resident_ms_; }

 private:
  Status Start() {
    const TokenCount cells = (options_.prefix_tokens + kSpareTokens) * options_.prefixes +
                             options_.reply_tokens + 2 * kSpareTokens;
    ServerCommand command;
    command.model_path = options_.model;
    command.log_path = workspace_.path() + "/server.log";
    command.flags = {"-c",
                     std::to_string(cells),
                     "-np",
                     std::to_string(options_.prefixes + 1),
                     "-t",
                     "1",
                     "--kv-cache-disk",
                     "4GiB",
                     "--kv-cache-disk-dir",
                     workspace_.path() + "/root",
                     "--kv-cache-min-free",
                     "1GiB"};
    server_.reset();
    SKIPPY_ASSIGN_OR_RETURN(server_, ServerProcess::Start(command));
    return {};
  }

  // The gaps of the watched client from the moment when the others ask to its end: the same number
  // of tokens beside restores and then beside residents. Each of the others must take at least
  // `disk_tokens` from disk.
  Status Watch(TokenCount disk_tokens, std::vector<double>* gaps_ms) {
    const auto clock = [] { return std::chrono::steady_clock::now(); };
    const auto begin = clock();
    std::future<Result<Completion>> watched =
        std::async(std::launch::async, Complete, server_->port(),
                   CompletionRequest{watched_, options_.reply_tokens});
    SKIPPY_RETURN_IF_ERROR(WaitUntilBusy());
    const double from_ms = std::chrono::duration<double, std::milli>(clock() - begin).count();
    Result<std::vector<Completion>> others = CompleteTogether(server_->port(), prefixes_);
    const double to_ms = std::chrono::duration<double, std::milli>(clock() - begin).count();
    SKIPPY_ASSIGN_OR_RETURN(const Completion answer, watched.get());
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Completion> answers, std::move(others));
    for (const Completion& other : answers) {
      if (other.computed_tokens != 1 || other.cached_disk_tokens < disk_tokens) {
        return MakeError(
            ErrorCode::kInternal,
            fmt::format("{} tokens computed and {} from disk; expected 1 and at least {}",
                        other.computed_tokens, other.cached_disk_tokens, disk_tokens));
      }
    }
    if (to_ms >= answer.event_ms.back()) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "--reply: the watched reply ended before the restores");
    }
    for (std::size_t i = 1; i < answer.event_ms.size(); ++i) {
      if (answer.event_ms[i] >= from_ms) {
        gaps_ms->push_back(answer.event_ms[i] - answer.event_ms[i - 1]);
      }
    }
    return {};
  }

  Status WaitUntilBusy() const {
    for (;;) {
      SKIPPY_ASSIGN_OR_RETURN(const Json status, server_->GetStatus());
      if (status["engine"].value("lanes_busy", 0) > 0) return {};
    }
  }

  const GapOptions& options_;
  const Workspace& workspace_;
  std::unique_ptr<ServerProcess> server_;
  std::vector<Token> watched_;
  std::vector<CompletionRequest> prefixes_;
  std::vector<double> restoring_ms_;
  std::vector<double> resident_ms_;
};

std::vector<std::string> Row(const std::string& name, const std::vector<double>& gaps_ms) {
  return {name,
          std::to_string(gaps_ms.size()),
          fmt::format("{:.2f}", Median(gaps_ms)),
          fmt::format("{:.2f}", Quantile(gaps_ms, 0.9)),
          fmt::format("{:.2f}", Quantile(gaps_ms, 0.99)),
          fmt::format("{:.2f}", Quantile(gaps_ms, 1))};
}

}  // namespace

Result<BenchReport> RunDecodeGap(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const GapOptions options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  GapRun run(options, *workspace);
  SKIPPY_RETURN_IF_ERROR(run.Record());
  for (int round = 0; round < options.rounds; ++round) {
    SKIPPY_RETURN_IF_ERROR(run.MeasureRound());
  }
  BenchReport report;
  report.name = "decode-gap";
  report.figure = Quantile(run.restoring_ms(), 0.99) / Quantile(run.resident_ms(), 0.99);
  report.unit = "p99 gap beside restores / beside residents";
  report.goal = "<= 1.05";
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"prefixes", std::to_string(options.prefixes)},
                   {"prefix_tokens", std::to_string(options.prefix_tokens)},
                   {"rounds", std::to_string(options.rounds)},
                   {"engine_threads", "1"}};
  report.table = FormatTable({{"gap ms", "gaps", "p50", "p90", "p99", "max"},
                              Row("beside restores", run.restoring_ms()),
                              Row("beside residents", run.resident_ms())});
  return report;
}

}  // namespace skippy::bench
