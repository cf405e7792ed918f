// What verification and the way through the cache cost beside plain reading: one long prefix is
// restored from disk, then the same packs are read by one thread, request by request of a segment's
// size. Neither finds anything in the page cache; digests are checked in the first arm only.
#include <spdlog/fmt/fmt.h>

#include <chrono>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr TokenCount kSegmentTokens = 256;

struct Options {
  std::string work;
  std::uint64_t total_mib = 1024;
  std::uint64_t bytes_per_token = 23040;  // 135M shape, f16
  int repeats = 5;
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("restoring against plain reading", "skippy bench restore-io");
  app.add_option("--mib", options.total_mib, "size of the prefix")->check(CLI::Range(1, 100000));
  app.add_option("--bytes-per-token", options.bytes_per_token, "of state");
  app.add_option("--repeats", options.repeats, "of each arm, by turns")->check(CLI::Range(1, 1000));
  app.add_option("--work", options.work, "folder for the cache root");
  app.add_flag("--tiny", tiny, "a small prefix, once");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.total_mib = 8;
    options.repeats = 1;
  }
  return options;
}

Result<double> RestoreMilliseconds(BenchStore& store, const std::string& root,
                                   std::span<const Token> path) {
  SKIPPY_RETURN_IF_ERROR(DropPages(root));
  const auto start = Clock::now();
  SKIPPY_ASSIGN_OR_RETURN(const TokenCount tokens, store.RestoreAll(path));
  const double milliseconds =
      std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (tokens != static_cast<TokenCount>(path.size())) {
    return MakeError(ErrorCode::kInternal, "not everything was restored");
  }
  return milliseconds;
}

}  // namespace

Result<BenchReport> RunRestoreIo(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  const std::string root = workspace->path() + "/root";
  const std::uint64_t total_bytes = options.total_mib * kMiB;
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = root,
                                            .budget_bytes = 2 * total_bytes + 64 * kMiB,
                                            .bytes_per_token = options.bytes_per_token,
                                            .write_queue_bytes = 128 * kMiB}));
  const auto path =
      SyntheticPath(1, static_cast<TokenCount>(total_bytes / options.bytes_per_token));
  SKIPPY_RETURN_IF_ERROR(store->Record(path));
  SKIPPY_RETURN_IF_ERROR(store->cache().Flush());
  const double payload_bytes = static_cast<double>(path.size() * options.bytes_per_token);
  std::vector<double> restore_mbps;
  std::vector<double> plain_mbps;
  std::vector<double> ratios;
  for (int i = 0; i < options.repeats; ++i) {
    SKIPPY_ASSIGN_OR_RETURN(const double milliseconds, RestoreMilliseconds(*store, root, path));
    SKIPPY_ASSIGN_OR_RETURN(
        const ReadSpeed plain,
        ReadPacks(root, static_cast<std::uint64_t>(payload_bytes),
                  options.bytes_per_token * static_cast<std::uint64_t>(kSegmentTokens)));
    restore_mbps.push_back(payload_bytes / milliseconds / 1e3);
    plain_mbps.push_back(static_cast<double>(plain.byte_count) / plain.milliseconds / 1e3);
    ratios.push_back(restore_mbps.back() / plain_mbps.back());
  }
  BenchReport report;
  report.name = "restore-io";
  report.figure = Median(ratios);
  report.unit = "speed of a restore / speed of plain reads";
  report.goal = ">= 0.85";
  report.inputs = {{"mib", std::to_string(options.total_mib)},
                   {"bytes_per_token", std::to_string(options.bytes_per_token)},
                   {"segments", std::to_string((path.size() + 255) / 256)},
                   {"restore_mb_per_s", fmt::format("{:.0f}", Median(restore_mbps))},
                   {"plain_mb_per_s", fmt::format("{:.0f}", Median(plain_mbps))},
                   {"repeats", std::to_string(options.repeats)}};
  report.table = FormatTable({{"", "MB/s"},
                              {"restore, digests checked", report.inputs["restore_mb_per_s"]},
                              {"plain reads, one thread", report.inputs["plain_mb_per_s"]},
                              {"ratio", fmt::format("{:.3f}", report.figure)}});
  return report;
}

}  // namespace skippy::bench
