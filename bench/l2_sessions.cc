// More conversations than the engine's cells hold, revisited in random order, with no disk tier:
// how much of each is still there. With --peer the same is asked of llama-server with the same
// `--cache-ram`, in the same run.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <random>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/http_client.h"
#include "bench/prompts.h"
#include "bench/server_process.h"
#include "bench/statistics.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr std::uint64_t kHeadSeed = 60;
constexpr std::uint64_t kOwnSeed = 100;  // and the following
constexpr unsigned kOrderSeed = 20261201;
constexpr TokenCount kReplyTokens = 1;  // its state is not computed before the next turn
constexpr TokenCount kMayBeAgain = 1;   // the last known token, for its logits

struct SessionsOptions {
  std::string model;
  std::string work;
  int conversations = 40;
  int visits = 2;
  TokenCount head_tokens = 500;
  TokenCount own_tokens = 700;
  TokenCount new_tokens = 50;
  TokenCount context_tokens = 8192;
  int cache_ram_mib = 128;
  bool peer = false;
};

struct Outcome {
  std::vector<double> first_token_ms;
  TokenCount computed_tokens = 0;
  int visits = 0;
  int whole = 0;  // visits that computed only what was new
  int kept = 0;   // of the last round: conversations that were still there at the end
};

Result<SessionsOptions> ReadOptions(const std::vector<std::string>& arguments) {
  SessionsOptions options;
  bool tiny = false;
  CLI::App app("more conversations than the engine holds", "skippy bench l2-sessions");
  app.add_option("--model", options.model, "GGUF; default: the demo model");
  app.add_option("--conversations", options.conversations, "how many")->check(CLI::Range(1, 1000));
  app.add_option("--visits", options.visits, "rounds over all of them")->check(CLI::Range(1, 100));
  app.add_option("--head", options.head_tokens, "tokens common to all")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--own", options.own_tokens, "tokens of each one's first turn")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--new", options.new_tokens, "tokens of each visit")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("-c,--ctx-size", options.context_tokens, "cells of each server")
      ->check(CLI::Range(64, 1 << 24));
  app.add_option("--cache-ram", options.cache_ram_mib, "MiB of each server")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--work", options.work, "folder for logs");
  app.add_flag("--peer", options.peer, "ask llama-server too (`make peers` builds it)");
  app.add_flag("--tiny", tiny, "few and short conversations");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.conversations = 6;
    options.head_tokens = 60;
    options.own_tokens = 200;
    options.context_tokens = 768;
    options.visits = 1;
  }
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, FindDemoModel());
  }
  return options;
}

class SessionsRun {
 public:
  SessionsRun(const SessionsOptions& options, const Workspace& workspace, ServerProgram program)
      : options_(options), workspace_(workspace), program_(program) {}

  Result<Outcome> Run() {
    SKIPPY_RETURN_IF_ERROR(Start());
    SKIPPY_RETURN_IF_ERROR(MakeConversations());
    Outcome outcome;
    std::mt19937 random(kOrderSeed);
    for (std::vector<Token>& prompt : prompts_) {
      SKIPPY_RETURN_IF_ERROR(Ask(&prompt));
    }
    std::vector<std::size_t> order(prompts_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = 0; round < options_.visits; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      outcome.kept = 0;
      for (const std::size_t i : order) {
        SKIPPY_RETURN_IF_ERROR(Visit(&prompts_[i], &outcome));
      }
    }
    SKIPPY_RETURN_IF_ERROR(server_->Stop());
    return outcome;
  }

 private:
  Status Start() {
    ServerCommand command;
    command.model_path = options_.model;
    command.log_path = workspace_.path() + "/server.log";
    command.program = program_;
    command.flags = {"-c",    std::to_string(options_.context_tokens), "-np", "4",
                     "-cram", std::to_string(options_.cache_ram_mib)};
    if (program_ == ServerProgram::kLlamaServer) {
      command.flags.emplace_back("--kv-unified");
    }
    SKIPPY_ASSIGN_OR_RETURN(server_, ServerProcess::Start(command));
    return {};
  }

  Status MakeConversations() {
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> head,
                            RandomPrompt(server_->port(), options_.head_tokens, kHeadSeed));
    for (int i = 0; i < options_.conversations; ++i) {
      prompts_.push_back(head);
      SKIPPY_RETURN_IF_ERROR(Extend(&prompts_.back(), options_.own_tokens));
    }
    return {};
  }

  // By words that no other turn has.
  Status Extend(std::vector<Token>* prompt, TokenCount token_count) {
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> words,
                            RandomPrompt(server_->port(), token_count + 1, kOwnSeed + ++turns_));
    prompt->insert(prompt->end(), words.begin() + 1, words.end());
    return {};
  }

  // The reply becomes part of the conversation.
  Result<Completion> Ask(std::vector<Token>* prompt) {
    const Token reply = prompt->back();
    SKIPPY_ASSIGN_OR_RETURN(const Completion answer,
                            Complete(server_->port(), {*prompt, kReplyTokens, reply}));
    prompt->push_back(reply);
    return answer;
  }

  Status Visit(std::vector<Token>* prompt, Outcome* outcome) {
    SKIPPY_RETURN_IF_ERROR(Extend(prompt, options_.new_tokens));
    SKIPPY_ASSIGN_OR_RETURN(const Completion answer, Ask(prompt));
    outcome->first_token_ms.push_back(answer.first_token_ms);
    outcome->computed_tokens += answer.computed_tokens;
    ++outcome->visits;
    if (answer.computed_tokens <= kReplyTokens + options_.new_tokens + kMayBeAgain) {
      ++outcome->whole;
      ++outcome->kept;
    }
    return {};
  }

  const SessionsOptions& options_;
  const Workspace& workspace_;
  const ServerProgram program_;
  std::unique_ptr<ServerProcess> server_;
  std::vector<std::vector<Token>> prompts_;
  std::uint64_t turns_ = 0;
};

std::vector<std::string> Row(const std::string& name, const Outcome& outcome) {
  return {name,
          fmt::format("{} of {}", outcome.whole, outcome.visits),
          std::to_string(outcome.kept),
          std::to_string(outcome.computed_tokens),
          fmt::format("{:.1f}", Median(outcome.first_token_ms)),
          fmt::format("{:.1f}", Quantile(outcome.first_token_ms, 0.9))};
}

}  // namespace

Result<BenchReport> RunL2Sessions(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const SessionsOptions options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  SessionsRun run(options, *workspace, ServerProgram::kSkippy);
  SKIPPY_ASSIGN_OR_RETURN(const Outcome own, run.Run());
  std::vector<std::vector<std::string>> table = {
      {"", "visits that computed only their new tokens", "kept at the end", "tokens computed",
       "first token ms, median", "p90"},
      Row("Skippy", own)};
  BenchReport report;
  report.name = "l2-sessions";
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"conversations", std::to_string(options.conversations)},
                   {"visits_each", std::to_string(options.visits)},
                   {"head_tokens", std::to_string(options.head_tokens)},
                   {"own_tokens", std::to_string(options.own_tokens)},
                   {"new_tokens", std::to_string(options.new_tokens)},
                   {"context_tokens", std::to_string(options.context_tokens)},
                   {"cache_ram_mib", std::to_string(options.cache_ram_mib)},
                   {"kept", std::to_string(own.kept)}};
  if (options.peer) {
    SessionsRun peer(options, *workspace, ServerProgram::kLlamaServer);
    SKIPPY_ASSIGN_OR_RETURN(const Outcome other, peer.Run());
    table.push_back(Row("llama-server", other));
    report.inputs["peer_kept"] = std::to_string(other.kept);
    report.inputs["first_token_ratio"] =
        fmt::format("{:.3f}", Median(own.first_token_ms) / Median(other.first_token_ms));
  }
  report.figure = static_cast<double>(own.whole) / std::max(1, own.visits);
  report.unit = "part of the visits that computed only their new tokens";
  report.goal = "1";
  report.table = FormatTable(table);
  return report;
}

}  // namespace skippy::bench
