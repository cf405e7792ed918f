// Requests that share a long head and arrive together: how many prompt tokens are computed, and how
// many cells hold the result. With --peer the same is asked of llama-server.
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

constexpr std::uint64_t kHeadSeed = 30;
constexpr std::uint64_t kTailSeed = 31;  // and the following
constexpr TokenCount kReplyTokens = 1;
constexpr TokenCount kBatchTokens = 64;  // what may be computed twice where requests meet

struct SharedOptions {
  std::string model;
  std::string work;
  TokenCount head_tokens = 4000;
  TokenCount tail_tokens = 100;
  int clients = 4;
  TokenCount agents_head_tokens = 8000;
  int agents = 16;
  bool peer = false;
  bool tiny = false;
};

struct Burst {
  TokenCount computed_tokens = 0;
  double last_answer_ms = 0;
  double mean_first_token_ms = 0;
};

TokenCount Possible(TokenCount head, TokenCount tail, int clients) { return head + tail * clients; }

Result<SharedOptions> ReadOptions(const std::vector<std::string>& arguments) {
  SharedOptions options;
  CLI::App app("requests with a common head that arrive together", "skippy bench shared-prefix");
  app.add_option("--model", options.model, "GGUF; default: the demo model");
  app.add_option("--head", options.head_tokens, "common tokens")->check(CLI::Range(2, 1 << 20));
  app.add_option("--tail", options.tail_tokens, "own tokens")->check(CLI::Range(1, 1 << 20));
  app.add_option("--clients", options.clients, "requests at once")->check(CLI::Range(1, 200));
  app.add_option("--agents-head", options.agents_head_tokens, "common tokens of the agents")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--agents", options.agents, "agents at once")->check(CLI::Range(1, 200));
  app.add_option("--work", options.work, "folder for logs");
  app.add_flag("--peer", options.peer, "ask llama-server too (`make peers` builds it)");
  app.add_flag("--tiny", options.tiny, "short prompts");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.tiny) {
    options.head_tokens = 300;
    options.agents_head_tokens = 300;
    options.tail_tokens = 20;
  }
  if (options.model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options.model, FindDemoModel());
  }
  return options;
}

// One program, started anew for every burst, so that each is cold.
class SharedRun {
 public:
  SharedRun(const SharedOptions& options, const Workspace& workspace, ServerProgram program)
      : options_(options), workspace_(workspace), program_(program) {}

  Status Start(TokenCount head, int clients) {
    ServerCommand command;
    command.model_path = options_.model;
    command.log_path = workspace_.path() + "/server.log";
    command.program = program_;
    const TokenCount cells = (head + options_.tail_tokens + 2 * kBatchTokens) * clients;
    command.flags = {"-c", std::to_string(cells), "-np", std::to_string(clients)};
    if (program_ == ServerProgram::kLlamaServer) {
      command.flags.emplace_back("--kv-unified");
    }
    server_.reset();
    SKIPPY_ASSIGN_OR_RETURN(server_, ServerProcess::Start(command));
    return {};
  }

  Result<Burst> Ask(TokenCount head, int clients) {
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> common,
                            RandomPrompt(server_->port(), head, kHeadSeed));
    std::vector<CompletionRequest> requests;
    for (int i = 0; i < clients; ++i) {
      SKIPPY_ASSIGN_OR_RETURN(const std::vector<Token> own,
                              RandomPrompt(server_->port(), options_.tail_tokens + 1,
                                           kTailSeed + static_cast<std::uint64_t>(i)));
      CompletionRequest request{common, kReplyTokens};
      request.prompt.insert(request.prompt.end(), own.begin() + 1, own.end());
      requests.push_back(std::move(request));
    }
    SKIPPY_ASSIGN_OR_RETURN(const std::vector<Completion> answers,
                            CompleteTogether(server_->port(), requests));
    Burst burst;
    for (const Completion& answer : answers) {
      burst.computed_tokens += answer.computed_tokens;
      burst.last_answer_ms = std::max(burst.last_answer_ms, answer.total_ms);
      burst.mean_first_token_ms += answer.first_token_ms / static_cast<double>(clients);
    }
    return burst;
  }

  Result<TokenCount> CellsUsed() const {
    SKIPPY_ASSIGN_OR_RETURN(const Json status, server_->GetStatus());
    return status["engine"].value("cells_used", TokenCount{0});
  }

 private:
  const SharedOptions& options_;
  const Workspace& workspace_;
  const ServerProgram program_;
  std::unique_ptr<ServerProcess> server_;
};

std::vector<std::string> Row(const std::string& name, TokenCount possible, const Burst& burst,
                             const std::string& cells) {
  return {name,
          std::to_string(possible),
          std::to_string(burst.computed_tokens),
          fmt::format("{:.0f}", burst.mean_first_token_ms),
          fmt::format("{:.0f}", burst.last_answer_ms),
          cells};
}

}  // namespace

Result<BenchReport> RunSharedPrefix(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const SharedOptions options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  const TokenCount possible = Possible(options.head_tokens, options.tail_tokens, options.clients);
  const TokenCount agents_possible =
      Possible(options.agents_head_tokens, options.tail_tokens, options.agents);
  SharedRun run(options, *workspace, ServerProgram::kSkippy);
  SKIPPY_RETURN_IF_ERROR(run.Start(options.head_tokens, options.clients));
  SKIPPY_ASSIGN_OR_RETURN(const Burst cold, run.Ask(options.head_tokens, options.clients));
  SKIPPY_RETURN_IF_ERROR(run.Start(options.agents_head_tokens, options.agents));
  SKIPPY_ASSIGN_OR_RETURN(const Burst agents, run.Ask(options.agents_head_tokens, options.agents));
  SKIPPY_ASSIGN_OR_RETURN(const TokenCount cells, run.CellsUsed());
  std::vector<std::vector<std::string>> table = {
      {"", "possible", "computed", "mean first token ms", "last answer ms", "cells used"},
      Row(fmt::format("{} clients, cold", options.clients), possible, cold, "-"),
      Row(fmt::format("{} agents, cold", options.agents), agents_possible, agents,
          std::to_string(cells))};
  if (options.peer) {
    SharedRun peer(options, *workspace, ServerProgram::kLlamaServer);
    SKIPPY_RETURN_IF_ERROR(peer.Start(options.head_tokens, options.clients));
    SKIPPY_ASSIGN_OR_RETURN(const Burst burst, peer.Ask(options.head_tokens, options.clients));
    table.push_back(
        Row(fmt::format("llama-server, {} clients", options.clients), possible, burst, "not told"));
  }
  BenchReport report;
  report.name = "shared-prefix";
  report.figure = static_cast<double>(cold.computed_tokens);
  report.unit = "prompt tokens computed";
  report.goal = fmt::format("<= {}", possible + kBatchTokens);
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"head_tokens", std::to_string(options.head_tokens)},
                   {"tail_tokens", std::to_string(options.tail_tokens)},
                   {"clients", std::to_string(options.clients)},
                   {"agents", std::to_string(options.agents)},
                   {"agents_head_tokens", std::to_string(options.agents_head_tokens)},
                   {"agents_computed", std::to_string(agents.computed_tokens)},
                   {"agents_cells_used", std::to_string(cells)},
                   {"agents_cells_possible", std::to_string(agents_possible)}};
  report.table = FormatTable(table);
  return report;
}

}  // namespace skippy::bench
