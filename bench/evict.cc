// How long eviction takes: manifests of long prefixes that share nothing, all given up at once.
// Proves D45.
#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <limits>
#include <optional>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"
#include "cache/ledger.h"

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Options {
  std::string work;
  std::uint64_t manifests = 20;
  std::uint64_t references = 9504;
  TokenCount own_tokens = 19008;
  int repeats = 5;
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("time to evict", "skippy bench evict");
  app.add_option("--manifests", options.manifests, "prefixes")->check(CLI::Range(1, 100000));
  app.add_option("--references", options.references, "segments of each")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--repeats", options.repeats, "of the first figure")->check(CLI::Range(1, 1000));
  app.add_option("--work", options.work, "folder for the cache root");
  app.add_flag("--tiny", tiny, "few short prefixes");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.manifests = 2;
    options.references = 20;
    options.own_tokens = 600;
    options.repeats = 1;
  }
  return options;
}

// Choice of victims and release in memory, in the shape of many small references.
double EvictFromLedger(const Options& options) {
  Ledger ledger;
  std::uint64_t next = 1;
  for (std::uint64_t m = 0; m < options.manifests; ++m) {
    SegmentId parent = SegmentId::kNone;
    TokenCount end = 0;
    for (std::uint64_t r = 0; r < options.references; ++r) {
      const auto id = static_cast<SegmentId>(next++);
      ledger.AddSegment(id, {.domain = static_cast<DomainId>(1),
                             .parent = parent,
                             .first_token = end,
                             .token_count = 2,
                             .byte_count = 4096});
      parent = id;
      end += 2;
    }
    ledger.MarkDurable(ledger.AddManifest(parent, end).id);
  }
  const auto start = Clock::now();
  std::optional<Ledger::VictimKey> cursor;
  LedgerRemovals removals;
  while (ledger.EvictNext(
      &cursor, [](const Ledger::Manifest&) { return true; }, &removals)) {
  }
  const double milliseconds = MillisecondsSince(start);
  return removals.segments.size() == options.manifests * options.references
             ? milliseconds
             : std::numeric_limits<double>::infinity();
}

// The same prefixes as this store cuts them, through the whole cache, rows and packs included.
Result<double> EvictFromStore(const Options& options, const Workspace& workspace) {
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = workspace.path() + "/root",
                                            .budget_bytes = 2 * kGiB,
                                            .bytes_per_token = 512}));
  for (std::uint64_t m = 0; m < options.manifests; ++m) {
    SKIPPY_RETURN_IF_ERROR(store->Record(SyntheticPath(m + 1, options.own_tokens)));
  }
  SKIPPY_RETURN_IF_ERROR(store->cache().Flush());
  const auto start = Clock::now();
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t freed, store->cache().Clear(std::nullopt));
  const double milliseconds = MillisecondsSince(start);
  if (freed == 0 || store->cache().GetStatus().disk.manifests != 0) {
    return MakeError(ErrorCode::kInternal, "not everything was evicted");
  }
  return milliseconds;
}

}  // namespace

Result<BenchReport> RunEvict(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  std::vector<double> samples;
  for (int i = 0; i < options.repeats; ++i) samples.push_back(EvictFromLedger(options));
  SKIPPY_ASSIGN_OR_RETURN(const double own_ms, EvictFromStore(options, *workspace));
  BenchReport report;
  report.name = "evict";
  report.figure = Median(samples);
  report.unit = "ms to choose and release in memory";
  report.goal = "<= 16 ms; the own shape, durable, <= 16 ms";
  report.inputs = {{"manifests", std::to_string(options.manifests)},
                   {"references", std::to_string(options.references)},
                   {"own_shape_tokens", std::to_string(options.own_tokens)},
                   {"own_shape_durable_ms", fmt::format("{:.2f}", own_ms)},
                   {"repeats", std::to_string(options.repeats)}};
  report.table =
      FormatTable({{"", "ms"},
                   {"many references, in memory", fmt::format("{:.2f}", report.figure)},
                   {"own shape, rows and packs removed durably", fmt::format("{:.2f}", own_ms)}});
  return report;
}

}  // namespace skippy::bench
