// Whether the root ever takes more than its budget: sampled 50 times a second from outside while
// new state is recorded as fast as it goes, with pruning and changes of the budget in between.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

constexpr auto kSamplePeriod = std::chrono::milliseconds(20);
constexpr std::uint64_t kBytesPerToken = 4096;
constexpr TokenCount kPathTokens = 1024;

struct Options {
  std::string work;
  std::uint64_t budget_mib = 256;
  int rounds = 20;
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("largest part of the budget that the root takes", "skippy bench budget-watch");
  app.add_option("--budget-mib", options.budget_mib, "larger of the two budgets")
      ->check(CLI::Range(64, 1 << 20));
  app.add_option("--rounds", options.rounds, "changes of the budget")->check(CLI::Range(1, 100000));
  app.add_option("--work", options.work, "folder for the cache root");
  app.add_flag("--tiny", tiny, "two rounds");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.rounds = 2;
    options.budget_mib = 64;
  }
  return options;
}

// A file may vanish while the folder is read: that sample is taken again.
class Watch {
 public:
  Watch(std::string root, std::uint64_t budget_bytes)
      : root_(std::move(root)), limit_bytes_(budget_bytes), thread_([this] { Loop(); }) {}
  ~Watch() {
    stop_ = true;
    thread_.join();
  }
  // The larger of the budgets before and after, while it is being changed.
  void Allow(std::uint64_t budget_bytes) EXCLUDES(mu_) {
    MutexLock lock(mu_);
    limit_bytes_ = budget_bytes;
  }
  double largest_part() EXCLUDES(mu_) {
    MutexLock lock(mu_);
    return largest_part_;
  }
  std::uint64_t samples() const { return samples_; }

 private:
  void Loop() EXCLUDES(mu_) {
    while (!stop_) {
      {
        MutexLock lock(mu_);
        if (const auto bytes = DiskBytes(root_)) {
          ++samples_;
          largest_part_ = std::max(largest_part_,
                                   static_cast<double>(*bytes) / static_cast<double>(limit_bytes_));
        }
      }
      std::this_thread::sleep_for(kSamplePeriod);
    }
  }

  const std::string root_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> samples_{0};
  Mutex mu_;
  std::uint64_t limit_bytes_ GUARDED_BY(mu_);
  double largest_part_ GUARDED_BY(mu_) = 0;
  std::thread thread_;
};

Status Fill(BenchStore& store, std::uint64_t byte_count, std::uint64_t* seed) {
  for (std::uint64_t done = 0; done < byte_count; done += kBytesPerToken * kPathTokens) {
    const Status recorded = store.Record(SyntheticPath(++*seed, kPathTokens));
    // A record that the budget has no room for is refused; that is not what is measured here.
    if (!recorded && recorded.error().code != ErrorCode::kResourceExhausted) return recorded;
  }
  return {};
}

Status RunRounds(const Options& options, BenchStore& store, Watch& watch) {
  const std::uint64_t large = options.budget_mib * kMiB;
  const std::uint64_t small = large / 2;
  std::uint64_t seed = 0;
  for (int round = 0; round < options.rounds; ++round) {
    SKIPPY_RETURN_IF_ERROR(Fill(store, large + large / 4, &seed));
    if (round % 2 == 0) {
      SKIPPY_RETURN_IF_ERROR(store.cache().SetDiskLimits(small, kLowestMinimumFreeBytes));
      watch.Allow(small);
      SKIPPY_RETURN_IF_ERROR(Fill(store, small, &seed));
    } else {
      SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t freed,
                              store.cache().Prune(large / 3, std::nullopt));
      if (freed == 0)
        return MakeError(ErrorCode::kInternal, "a prune of a full store freed nothing");
    }
    watch.Allow(large);
    SKIPPY_RETURN_IF_ERROR(store.cache().SetDiskLimits(large, kLowestMinimumFreeBytes));
  }
  return store.cache().Flush();
}

}  // namespace

Result<BenchReport> RunBudgetWatch(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  const std::string root = workspace->path() + "/root";
  const std::uint64_t budget_bytes = options.budget_mib * kMiB;
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = root,
                                            .budget_bytes = budget_bytes,
                                            .bytes_per_token = kBytesPerToken,
                                            .write_queue_bytes = 64 * kMiB}));
  Watch watch(root, budget_bytes);
  SKIPPY_RETURN_IF_ERROR(RunRounds(options, *store, watch));
  BenchReport report;
  report.name = "budget-watch";
  report.figure = watch.largest_part();
  report.unit = "largest size of the root / budget";
  report.goal = "<= 1, always";
  report.inputs = {
      {"budget_mib", std::to_string(options.budget_mib)},
      {"rounds", std::to_string(options.rounds)},
      {"samples", std::to_string(watch.samples())},
      {"bytes_written", std::to_string(store->cache().GetStatus().activity.bytes_written)}};
  report.table = FormatTable({{"", "value"},
                              {"largest part of the budget", fmt::format("{:.4f}", report.figure)},
                              {"samples", std::to_string(watch.samples())}});
  return report;
}

}  // namespace skippy::bench
