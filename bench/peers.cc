// Speed beside llama-server built from the same source: decoding with many clients, a cold prompt,
// and whole requests. The servers take turns in the order A B B A, and are started anew for every
// round: where a process's memory happens to lie makes it several percent faster or slower.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <thread>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/http_client.h"
#include "bench/models.h"
#include "bench/prompts.h"
#include "bench/server_process.h"
#include "bench/statistics.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr TokenCount kDecodePromptTokens = 8;
constexpr TokenCount kOneToken = 1;
constexpr TokenCount kMixedReply = 32;
constexpr std::uint64_t kFirstSeed = 1000;

struct PeersOptions {
  std::string model;
  std::string work;
  std::vector<int> clients = {1, 8, 32};
  int rounds = 5;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
  int lanes = 32;
  TokenCount context_tokens = 32768;
  TokenCount decode_tokens = 64;
  TokenCount prefill_tokens = 2000;
  TokenCount mixed_prompt_tokens = 500;
  int mixed_clients = 8;
  bool per_stream = false;
};

enum class Arm { kSkippy, kUnified, kPerStream };

// What all clients of one burst do. Every burst has prompts that nobody asked before.
struct Burst {
  int clients = 1;
  TokenCount prompt_tokens = 0;
  TokenCount common_tokens = 0;  // of them, shared by the clients of this burst
  TokenCount reply_tokens = 1;
  bool measures_decode = false;
};

struct Speed {
  double tokens_per_second = 0;  // of all replies, while every client is being answered
  double last_answer_ms = 0;
  double mean_first_token_ms = 0;
};

// Speed of decoding: from the moment when every client has its first token to the moment when the
// first of them has its last one. What comes before is how requests arrive.
Result<double> DecodeSpeed(const std::vector<Completion>& answers, TokenCount reply_tokens) {
  double begin_ms = 0;
  double end_ms = answers.front().total_ms;
  for (const Completion& answer : answers) {
    if (answer.event_ms.size() < static_cast<std::size_t>(reply_tokens)) {
      return MakeError(ErrorCode::kInternal, "a server did not send every token by itself");
    }
    begin_ms = std::max(begin_ms, answer.event_ms.front());
    end_ms = std::min(end_ms, answer.event_ms.at(static_cast<std::size_t>(reply_tokens) - 1));
  }
  if (begin_ms >= end_ms) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--reply: too short, the clients were never answered all at once");
  }
  double tokens = 0;
  for (const Completion& answer : answers) {
    tokens += static_cast<double>(
        std::count_if(answer.event_ms.begin(), answer.event_ms.end(),
                      [&](double at_ms) { return at_ms > begin_ms && at_ms <= end_ms; }));
  }
  return tokens / ((end_ms - begin_ms) / 1000);
}

Result<Speed> SpeedOf(const std::vector<Completion>& answers, const Burst& burst) {
  Speed speed;
  for (const Completion& answer : answers) {
    speed.last_answer_ms = std::max(speed.last_answer_ms, answer.total_ms);
    speed.mean_first_token_ms += answer.first_token_ms / static_cast<double>(answers.size());
  }
  if (burst.measures_decode) {
    SKIPPY_ASSIGN_OR_RETURN(speed.tokens_per_second, DecodeSpeed(answers, burst.reply_tokens));
  }
  return speed;
}

class PeersRun {
 public:
  PeersRun(const PeersOptions& options, const Workspace& workspace)
      : options_(options), workspace_(workspace) {}

  Status Start(Arm arm) {
    ServerCommand command;
    command.model_path = options_.model;
    command.log_path = fmt::format("{}/server-{}.log", workspace_.path(), static_cast<int>(arm));
    command.flags = {"-c",  std::to_string(options_.context_tokens),
                     "-np", std::to_string(options_.lanes),
                     "-t",  std::to_string(options_.threads)};
    if (arm != Arm::kSkippy) {
      command.program = ServerProgram::kLlamaServer;
      command.flags.emplace_back(arm == Arm::kUnified ? "--kv-unified" : "--no-kv-unified");
    }
    SKIPPY_ASSIGN_OR_RETURN(servers_[static_cast<std::size_t>(arm)], ServerProcess::Start(command));
    return {};
  }

  // Skippy / other, of one A B B A.
  Result<double> Ratio(Arm other, const Burst& burst, double Speed::*figure) {
    SKIPPY_ASSIGN_OR_RETURN(const Speed first, Ask(Arm::kSkippy, burst));
    SKIPPY_ASSIGN_OR_RETURN(const Speed second, Ask(other, burst));
    SKIPPY_ASSIGN_OR_RETURN(const Speed third, Ask(other, burst));
    SKIPPY_ASSIGN_OR_RETURN(const Speed fourth, Ask(Arm::kSkippy, burst));
    return (first.*figure + fourth.*figure) / (second.*figure + third.*figure);
  }

  Status Stop() {
    for (auto& server : servers_) {
      if (server == nullptr) continue;
      SKIPPY_RETURN_IF_ERROR(server->Stop());
      server.reset();
    }
    return {};
  }

 private:
  Result<Speed> Ask(Arm arm, const Burst& burst) {
    const int port = servers_[static_cast<std::size_t>(arm)]->port();
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> common,
                            RandomPrompt(port, burst.common_tokens + 1, ++seed_));
    std::vector<CompletionRequest> requests;
    for (int i = 0; i < burst.clients; ++i) {
      const TokenCount own_tokens = burst.prompt_tokens - burst.common_tokens;
      SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> own,
                              RandomPrompt(port, own_tokens, ++seed_));
      CompletionRequest request{
          {common.begin(), common.begin() + burst.common_tokens}, burst.reply_tokens, own.back()};
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      requests.push_back(std::move(request));
    }
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Completion> answers,
                            CompleteTogether(port, requests));
    return SpeedOf(answers, burst);
  }

  const PeersOptions& options_;
  const Workspace& workspace_;
  std::array<std::unique_ptr<ServerProcess>, 3> servers_;
  std::uint64_t seed_ = kFirstSeed;
};

Result<PeersOptions> ReadOptions(const std::vector<std::string>& arguments) {
  PeersOptions options;
  CLI::App app("speed beside llama-server", "skippy bench peers");
  app.add_option("--model", options.model, "GGUF; default: random weights in a 135M shape");
  app.add_option("--clients", options.clients, "of the decoding bursts")
      ->delimiter(',')
      ->check(CLI::Range(1, 200));
  app.add_option("--rounds", options.rounds, "A B B A each, with new servers")
      ->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads, "of each server")->check(CLI::Range(1, 1024));
  app.add_option("--lanes", options.lanes, "-np of each server")->check(CLI::Range(1, 200));
  app.add_option("--reply", options.decode_tokens, "tokens each client decodes")
      ->check(CLI::Range(2, 4096));
  app.add_option("--prefill", options.prefill_tokens, "length of the cold prompt")
      ->check(CLI::Range(2, 1 << 20));
  app.add_flag("--per-stream", options.per_stream, "compare with per-stream KV too");
  app.add_option("--work", options.work, "folder for models and logs");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, RandomModel135M(options.work));
  }
  return options;
}

// One row of the table.
struct Line {
  std::string name;
  Burst burst;
  Arm other = Arm::kUnified;
  double Speed::*figure = nullptr;
  bool is_speed = false;  // more is better, and there is a goal
  bool inverted = false;  // the figure is a time, the ratio one of speeds
  std::vector<double> ratios = {};
};

std::vector<Line> MakeLines(const PeersOptions& options) {
  std::vector<Line> lines;
  for (const int clients : options.clients) {
    lines.push_back({.name = fmt::format("decode, {} clients, tokens/s", clients),
                     .burst = {clients, kDecodePromptTokens, 0, options.decode_tokens, true},
                     .figure = &Speed::tokens_per_second,
                     .is_speed = true});
  }
  lines.push_back(
      {.name = fmt::format("cold prompt of {} tokens, tokens/s", options.prefill_tokens),
       .burst = {1, options.prefill_tokens, 0, kOneToken},
       .figure = &Speed::mean_first_token_ms,
       .is_speed = true,
       .inverted = true});
  for (const Arm arm : {Arm::kUnified, Arm::kPerStream}) {
    if (arm == Arm::kPerStream && !options.per_stream) continue;
    for (const TokenCount common : {TokenCount{0}, options.mixed_prompt_tokens / 2}) {
      const std::string what = fmt::format(
          "{} clients, {} of {} prompt tokens common{}, ", options.mixed_clients, common,
          options.mixed_prompt_tokens, arm == Arm::kPerStream ? ", per-stream KV" : "");
      const Burst burst{options.mixed_clients, options.mixed_prompt_tokens, common, kMixedReply};
      lines.push_back({what + "first token", burst, arm, &Speed::mean_first_token_ms});
      lines.push_back({what + "last answer", burst, arm, &Speed::last_answer_ms});
    }
  }
  return lines;
}

Result<std::vector<Line>> MeasureAll(const PeersOptions& options, PeersRun* run) {
  std::vector<Line> lines = MakeLines(options);
  for (int round = 0; round < options.rounds; ++round) {
    SKIPPY_RETURN_IF_ERROR(run->Start(Arm::kSkippy));
    SKIPPY_RETURN_IF_ERROR(run->Start(Arm::kUnified));
    if (options.per_stream) SKIPPY_RETURN_IF_ERROR(run->Start(Arm::kPerStream));
    for (Line& line : lines) {
      SKIPPY_ASSIGN_OR_RETURN(const double ratio, run->Ratio(line.other, line.burst, line.figure));
      line.ratios.push_back(line.inverted ? 1 / ratio : ratio);
    }
    SKIPPY_RETURN_IF_ERROR(run->Stop());
  }
  return lines;
}

BenchReport MakeReport(const PeersOptions& options, const std::vector<Line>& lines) {
  BenchReport report;
  report.name = "peers";
  report.unit = "worst throughput, Skippy / llama-server";
  report.goal = ">= 0.98";
  report.figure = 1e9;
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"rounds", std::to_string(options.rounds)},
                   {"threads", std::to_string(options.threads)},
                   {"lanes", std::to_string(options.lanes)},
                   {"context_tokens", std::to_string(options.context_tokens)},
                   {"reply_tokens", std::to_string(options.decode_tokens)}};
  std::vector<std::vector<std::string>> table = {{"Skippy / llama-server", "median", "range", ""}};
  for (const Line& line : lines) {
    const auto [low, high] = std::minmax_element(line.ratios.begin(), line.ratios.end());
    table.push_back({line.name, fmt::format("{:.3f}", Median(line.ratios)),
                     fmt::format("{:.3f} - {:.3f}", *low, *high),
                     line.is_speed ? "more is better" : "less is better"});
    report.inputs[line.name] = table.back()[1];
    if (line.is_speed) report.figure = std::min(report.figure, Median(line.ratios));
  }
  report.table = FormatTable(table);
  return report;
}

}  // namespace

Result<BenchReport> RunPeers(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const PeersOptions options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  PeersRun run(options, *workspace);
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<Line> lines, MeasureAll(options, &run));
  return MakeReport(options, lines);
}

}  // namespace skippy::bench
