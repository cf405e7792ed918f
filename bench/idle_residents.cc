// What idle sessions cost an active client: its speed beside them against that on an empty server,
// in the order A B B A; then each session goes on and must compute its new tokens only.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
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

constexpr std::uint64_t kSessionSeed = 7000;  // and the following
constexpr std::uint64_t kActiveSeed = 8000;   // and the following
constexpr TokenCount kDecodePromptTokens = 8;
constexpr TokenCount kNewTokens = 20;

struct IdleOptions {
  std::string model;
  std::string work;
  int sessions = 16;
  TokenCount session_tokens = 2000;
  TokenCount prefill_tokens = 1000;
  TokenCount reply_tokens = 64;
  int rounds = 3;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
  bool tiny = false;
};

Result<IdleOptions> ReadOptions(const std::vector<std::string>& arguments) {
  IdleOptions options;
  CLI::App app("speed of an active client beside idle sessions", "skippy bench idle-residents");
  app.add_option("--model", options.model, "GGUF; default: random weights in a 135M shape");
  app.add_option("--sessions", options.sessions, "idle ones")->check(CLI::Range(1, 200));
  app.add_option("--tokens", options.session_tokens, "of each session")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--prefill", options.prefill_tokens, "of the active client's prompt")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--reply", options.reply_tokens, "tokens that the active client decodes")
      ->check(CLI::Range(2, 1 << 16));
  app.add_option("--rounds", options.rounds, "A B B A each")->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads, "of each server")->check(CLI::Range(1, 1024));
  app.add_option("--work", options.work, "folder for models and logs");
  app.add_flag("--tiny", options.tiny, "one round with short sessions");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.tiny) {
    options.sessions = 3;
    options.session_tokens = 300;
    options.prefill_tokens = 200;
    options.reply_tokens = 16;
    options.rounds = 1;
  }
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, RandomModel135M(options.work));
  }
  return options;
}

struct Speed {
  double decode_per_second = 0;
  double prefill_per_second = 0;
};

class IdleRun {
 public:
  IdleRun(const IdleOptions& options, const Workspace& workspace)
      : options_(options), workspace_(workspace) {}

  Status Start() {
    SKIPPY_ASSIGN_OR_RETURN(empty_, StartServer("empty"));
    SKIPPY_ASSIGN_OR_RETURN(idle_, StartServer("idle"));
    for (int i = 0; i < options_.sessions; ++i) {
      SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> prompt, Session(i, 0));
      SKIPPY_ASSIGN_OR_RETURN(const Completion answer, Complete(idle_->port(), {prompt, 1}));
      if (answer.computed_tokens + answer.cached_tokens != options_.session_tokens) {
        return MakeError(ErrorCode::kInternal, "a session has another length than was asked for");
      }
    }
    return {};
  }

  Result<Speed> MeasureEmpty() { return Measure(*empty_); }
  Result<Speed> MeasureIdle() { return Measure(*idle_); }

  // The most tokens that a session computed when it went on, of kNewTokens new ones.
  Result<TokenCount> Resume() {
    TokenCount most = 0;
    for (int i = 0; i < options_.sessions; ++i) {
      SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> prompt, Session(i, kNewTokens));
      SKIPPY_ASSIGN_OR_RETURN(const Completion answer, Complete(idle_->port(), {prompt, 1}));
      most = std::max(most, answer.computed_tokens);
    }
    return most;
  }

  Result<Json> IdleStatus() const { return idle_->GetStatus(); }

 private:
  Result<std::unique_ptr<ServerProcess>> StartServer(const std::string& name) const {
    const TokenCount cells = (options_.session_tokens + 2 * kNewTokens) * options_.sessions +
                             4 * (options_.prefill_tokens + options_.reply_tokens);
    ServerCommand command;
    command.model_path = options_.model;
    command.log_path = fmt::format("{}/{}.log", workspace_.path(), name);
    command.flags = {"-c",  std::to_string(cells),
                     "-np", std::to_string(options_.sessions + 1),
                     "-t",  std::to_string(options_.threads)};
    return ServerProcess::Start(command);
  }

  Result<std::vector<Token>> Session(int i, TokenCount new_tokens) const {
    return RandomPrompt(idle_->port(), options_.session_tokens + new_tokens,
                        kSessionSeed + static_cast<std::uint64_t>(i));
  }

  Result<Speed> Measure(const ServerProcess& server) {
    Speed speed;
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> question,
                            RandomPrompt(server.port(), kDecodePromptTokens, ++seed_));
    SKIPPY_ASSIGN_OR_RETURN(
        const Completion reply,
        Complete(server.port(), {question, options_.reply_tokens, question.back()}));
    speed.decode_per_second = static_cast<double>(options_.reply_tokens - 1) * 1000 /
                              (reply.total_ms - reply.first_token_ms);
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> prompt,
                            RandomPrompt(server.port(), options_.prefill_tokens, ++seed_));
    SKIPPY_ASSIGN_OR_RETURN(const Completion cold, Complete(server.port(), {prompt, 1}));
    speed.prefill_per_second =
        static_cast<double>(cold.computed_tokens) * 1000 / cold.first_token_ms;
    return speed;
  }

  const IdleOptions& options_;
  const Workspace& workspace_;
  std::unique_ptr<ServerProcess> empty_;
  std::unique_ptr<ServerProcess> idle_;
  std::uint64_t seed_ = kActiveSeed;
};

std::vector<std::string> Row(const std::string& name, const std::vector<double>& ratios) {
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {name, fmt::format("{:.3f}", Median(ratios)), fmt::format("{:.3f} - {:.3f}", *low, *high)};
}

}  // namespace

Result<BenchReport> RunIdleResidents(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const IdleOptions options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  IdleRun run(options, *workspace);
  SKIPPY_RETURN_IF_ERROR(run.Start());
  std::vector<double> decode;
  std::vector<double> prefill;
  for (int round = 0; round < options.rounds; ++round) {
    SKIPPY_ASSIGN_OR_RETURN(const Speed a, run.MeasureIdle());
    SKIPPY_ASSIGN_OR_RETURN(const Speed b, run.MeasureEmpty());
    SKIPPY_ASSIGN_OR_RETURN(const Speed c, run.MeasureEmpty());
    SKIPPY_ASSIGN_OR_RETURN(const Speed d, run.MeasureIdle());
    decode.push_back((a.decode_per_second + d.decode_per_second) /
                     (b.decode_per_second + c.decode_per_second));
    prefill.push_back((a.prefill_per_second + d.prefill_per_second) /
                      (b.prefill_per_second + c.prefill_per_second));
  }
  SKIPPY_ASSIGN_OR_RETURN(const Json status, run.IdleStatus());
  const auto resident = status["engine"].value("resident_tokens", TokenCount{0});
  SKIPPY_ASSIGN_OR_RETURN(const TokenCount most, run.Resume());
  if (most > kNewTokens) {
    return MakeError(ErrorCode::kInternal, fmt::format("a session computed {} tokens for {} new "
                                                       "ones",
                                                       most, kNewTokens));
  }
  BenchReport report;
  report.name = "idle-residents";
  report.figure = std::min(Median(decode), Median(prefill));
  report.unit = "worst throughput, beside idle sessions / on an empty server";
  report.goal = ">= 0.9";
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"sessions", std::to_string(options.sessions)},
                   {"session_tokens", std::to_string(options.session_tokens)},
                   {"rounds", std::to_string(options.rounds)},
                   {"threads", std::to_string(options.threads)},
                   {"tokens_still_resident", std::to_string(resident)},
                   {"most_computed_by_a_session", std::to_string(most)},
                   {"new_tokens_of_a_session", std::to_string(kNewTokens)}};
  report.table = FormatTable({{"beside idle / empty", "median", "range"},
                              Row("decode, tokens/s", decode),
                              Row("cold prompt, tokens/s", prefill)});
  return report;
}

}  // namespace skippy::bench
