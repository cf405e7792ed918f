// What is written for each byte of new state: one conversation that grows turn by turn, over a file
// system in memory that counts. Proves D34.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "env/memory_env.h"

namespace skippy::bench {
namespace {

struct Options {
  TokenCount base_tokens = 2000;
  TokenCount turn_tokens = 300;
  int turns = 30;
  std::uint64_t bytes_per_token = 23040;  // 135M shape, f16
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("bytes written for each byte of new state", "skippy bench write-amplification");
  app.add_option("--base", options.base_tokens, "tokens of the first prompt");
  app.add_option("--turn", options.turn_tokens, "tokens of a turn");
  app.add_option("--turns", options.turns, "number of turns")->check(CLI::Range(1, 10000));
  app.add_option("--bytes-per-token", options.bytes_per_token, "of state");
  app.add_flag("--tiny", tiny, "few turns of little state");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.turns = 3;
    options.bytes_per_token = 512;
  }
  return options;
}

// Counts what is written to packs, headers and the filling of last blocks included.
class CountingEnv final : public MemoryEnv {
 public:
  CountingEnv() { CreateDirectories("/cache"); }
  std::uint64_t pack_bytes() const { return pack_bytes_; }
  std::uint64_t catalog_bytes() const { return catalog_bytes_; }

 protected:
  Verdict Before(const FileOp& op) override {
    if (op.kind == FileOpKind::kWrite) {
      const bool in_pack = op.path.find("/packs/") != std::string::npos;
      (in_pack ? pack_bytes_ : catalog_bytes_) += op.byte_count;
    }
    return {};
  }

 private:
  std::atomic<std::uint64_t> pack_bytes_{0};
  std::atomic<std::uint64_t> catalog_bytes_{0};
};

struct Turn {
  double unique_bytes = 0;
  double written_bytes = 0;
  double ratio() const { return written_bytes / unique_bytes; }
};

Result<Turn> RunTurn(const Options& options, const CountingEnv& env, BenchStore& store,
                     std::span<const Token> path, TokenCount known_tokens) {
  const std::uint64_t written_before = env.pack_bytes();
  SKIPPY_RETURN_IF_ERROR(store.Record(path));
  SKIPPY_RETURN_IF_ERROR(store.cache().Flush());
  if (store.cache().Peek(store.domain(), path, static_cast<TokenCount>(path.size()),
                         ResumeRule::kAnyToken) != static_cast<TokenCount>(path.size())) {
    return MakeError(ErrorCode::kInternal, "a turn was not recorded");
  }
  Turn turn;
  turn.unique_bytes = static_cast<double>((path.size() - static_cast<std::size_t>(known_tokens)) *
                                          options.bytes_per_token);
  turn.written_bytes = static_cast<double>(env.pack_bytes() - written_before);
  return turn;
}

}  // namespace

Result<BenchReport> RunWriteAmplification(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  CountingEnv env;
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = "/cache/root",
                                            .budget_bytes = 2 * kGiB,
                                            .bytes_per_token = options.bytes_per_token,
                                            .env = &env}));
  const std::vector<Token> path =
      SyntheticPath(1, options.base_tokens + options.turns * options.turn_tokens);
  double unique_bytes = 0;
  double written_bytes = 0;
  double worst = 0;
  TokenCount known_tokens = 0;
  for (int turn = 0; turn <= options.turns; ++turn) {
    const TokenCount end = options.base_tokens + turn * options.turn_tokens;
    SKIPPY_ASSIGN_OR_RETURN(
        const Turn result,
        RunTurn(options, env, *store, std::span(path).first(static_cast<std::size_t>(end)),
                known_tokens));
    known_tokens = end;
    unique_bytes += result.unique_bytes;
    written_bytes += result.written_bytes;
    worst = std::max(worst, result.ratio());
  }
  BenchReport report;
  report.name = "write-amplification";
  report.figure = written_bytes / unique_bytes;
  report.unit = "payload bytes written / new bytes of state";
  report.goal = "<= 1.02 over the run, <= 1.05 in the worst turn";
  report.inputs = {{"base_tokens", std::to_string(options.base_tokens)},
                   {"turn_tokens", std::to_string(options.turn_tokens)},
                   {"turns", std::to_string(options.turns)},
                   {"bytes_per_token", std::to_string(options.bytes_per_token)},
                   {"catalog_bytes_written", std::to_string(env.catalog_bytes())},
                   {"worst_turn", fmt::format("{:.4f}", worst)}};
  report.table = FormatTable({{"", "ratio"},
                              {"run", fmt::format("{:.4f}", report.figure)},
                              {"worst turn", fmt::format("{:.4f}", worst)}});
  return report;
}

}  // namespace skippy::bench
