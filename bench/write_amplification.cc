// What reaches the disk for each byte of new state: one conversation that grows turn by turn.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;

struct Options {
  std::string work;
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
  app.add_option("--work", options.work, "folder for the cache root");
  app.add_flag("--tiny", tiny, "few turns of little state");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.turns = 3;
    options.bytes_per_token = 512;
  }
  return options;
}

struct Turn {
  double unique_bytes = 0;
  double blocks_bytes = 0;  // in whole blocks, as written
  double ratio() const { return blocks_bytes / unique_bytes; }
};

// Segments of at most 256 tokens, each filled up to a block: what the packs took for new tokens.
Result<Turn> RunTurn(const Options& options, BenchStore& store, std::span<const Token> path,
                     TokenCount known_tokens) {
  const std::uint64_t written_before = store.cache().GetStatus().activity.bytes_written;
  const std::uint64_t segments_before = store.cache().GetStatus().disk.unique_segments;
  SKIPPY_RETURN_IF_ERROR(store.Record(path));
  SKIPPY_RETURN_IF_ERROR(store.cache().Flush());
  const CacheStatus status = store.cache().GetStatus();
  const std::uint64_t unique_bytes =
      (path.size() - static_cast<std::size_t>(known_tokens)) * options.bytes_per_token;
  const std::uint64_t segments = status.disk.unique_segments - segments_before;
  const std::uint64_t full_bytes =
      static_cast<std::uint64_t>(kMaxSegmentTokens) * options.bytes_per_token;
  const std::uint64_t last_bytes = unique_bytes - (segments - 1) * full_bytes;
  const auto padding = [](std::uint64_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes - bytes;
  };
  Turn turn;
  turn.unique_bytes = static_cast<double>(unique_bytes);
  turn.blocks_bytes =
      static_cast<double>(status.activity.bytes_written - written_before +
                          (segments - 1) * padding(full_bytes) + padding(last_bytes));
  return turn;
}

}  // namespace

Result<BenchReport> RunWriteAmplification(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = workspace->path() + "/root",
                                            .budget_bytes = 2 * kGiB,
                                            .bytes_per_token = options.bytes_per_token}));
  const std::vector<Token> path =
      SyntheticPath(1, options.base_tokens + options.turns * options.turn_tokens);
  double unique_bytes = 0;
  double blocks_bytes = 0;
  double worst = 0;
  TokenCount known_tokens = 0;
  for (int turn = 0; turn <= options.turns; ++turn) {
    const TokenCount end = options.base_tokens + turn * options.turn_tokens;
    SKIPPY_ASSIGN_OR_RETURN(
        const Turn result,
        RunTurn(options, *store, std::span(path).first(static_cast<std::size_t>(end)),
                known_tokens));
    known_tokens = end;
    unique_bytes += result.unique_bytes;
    blocks_bytes += result.blocks_bytes;
    worst = std::max(worst, result.ratio());
  }
  BenchReport report;
  report.name = "write-amplification";
  report.figure = blocks_bytes / unique_bytes;
  report.unit = "payload bytes written / new bytes of state";
  report.goal = "<= 1.02 over the run, <= 1.05 in the worst turn";
  report.inputs = {{"base_tokens", std::to_string(options.base_tokens)},
                   {"turn_tokens", std::to_string(options.turn_tokens)},
                   {"turns", std::to_string(options.turns)},
                   {"bytes_per_token", std::to_string(options.bytes_per_token)},
                   {"worst_turn", fmt::format("{:.4f}", worst)}};
  report.table = FormatTable({{"", "ratio"},
                              {"run", fmt::format("{:.4f}", report.figure)},
                              {"worst turn", fmt::format("{:.4f}", worst)}});
  return report;
}

}  // namespace skippy::bench
