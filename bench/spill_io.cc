// What recording to disk costs beside plain writing: one long prefix is recorded until it is
// durable; then a plain loop writes as many bytes, in requests of a segment's size, into files that
// are preallocated like packs, and syncs as the writer does: the file after every group, and a
// small log after that.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlock = 4096;
constexpr std::uint64_t kPackBytes = 256 * kMiB;
// As the writer takes them; a group of it may be smaller, never larger.
constexpr std::uint64_t kGroupBytes = 64 * kMiB;
constexpr std::uint64_t kGroupSegments = 64;
constexpr std::uint64_t kSegmentTokens = 256;

struct Options {
  std::string work;
  std::uint64_t total_mib = 1024;
  std::uint64_t bytes_per_token = 23040;  // 135M shape, f16
  int repeats = 3;
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("recording against plain writing", "skippy bench spill-io");
  app.add_option("--mib", options.total_mib, "size of the prefix")->check(CLI::Range(1, 100000));
  app.add_option("--bytes-per-token", options.bytes_per_token, "of state");
  app.add_option("--repeats", options.repeats, "of each arm, by turns")->check(CLI::Range(1, 1000));
  app.add_option("--work", options.work, "folder for the files");
  app.add_flag("--tiny", tiny, "a small prefix, once");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.total_mib = 8;
    options.repeats = 1;
  }
  return options;
}

double Milliseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Until everything is durable. The buffers are warm and the state is made beside the writing, as an
// engine would.
Result<double> SpillMilliseconds(const Options& options, const std::string& root) {
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<BenchStore> store,
                          BenchStore::Open({.directory = root,
                                            .budget_bytes = 2 * options.total_mib * kMiB + kGiB,
                                            .bytes_per_token = options.bytes_per_token,
                                            .write_queue_bytes = 2 * options.total_mib * kMiB}));
  const auto path =
      SyntheticPath(1, static_cast<TokenCount>(options.total_mib * kMiB / options.bytes_per_token));
  const auto start = Clock::now();
  SKIPPY_RETURN_IF_ERROR(store->Record(path));
  SKIPPY_RETURN_IF_ERROR(store->cache().Flush());
  const double milliseconds = Milliseconds(start);
  if (store->cache().GetStatus().activity.records_dropped != 0) {
    return MakeError(ErrorCode::kInternal, "not everything was recorded");
  }
  return milliseconds;
}

struct FreeBlocks {
  void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{kBlock}); }
};
using Blocks = std::unique_ptr<std::byte, FreeBlocks>;

Blocks MakeBlocks(std::size_t byte_count) {
  Blocks out(static_cast<std::byte*>(::operator new (byte_count, std::align_val_t{kBlock})));
  std::memset(out.get(), 0x41, byte_count);
  return out;
}

class PlainWriter {
 public:
  PlainWriter(std::string root, std::uint64_t request_bytes)
      : root_(std::move(root)),
        request_bytes_((request_bytes + kBlock - 1) / kBlock * kBlock),
        blocks_(MakeBlocks(request_bytes_)) {}

  Result<double> Run(std::uint64_t byte_count) {
    SKIPPY_RETURN_IF_ERROR(Env::Posix()->CreateDirectory(root_));
    OpenOptions create{.create = true, .writable = true};
    SKIPPY_ASSIGN_OR_RETURN(log_, Env::Posix()->OpenFile(root_ + "/log", create));
    const auto start = Clock::now();
    std::uint64_t in_group = 0;
    for (std::uint64_t written = 0; written < byte_count; written += request_bytes_) {
      if (pack_ == nullptr || offset_ + request_bytes_ > kPackBytes) SKIPPY_RETURN_IF_ERROR(Next());
      SKIPPY_RETURN_IF_ERROR(pack_->WriteAt(offset_, {blocks_.get(), request_bytes_}));
      offset_ += request_bytes_;
      in_group += request_bytes_;
      if (in_group < std::min(kGroupBytes, kGroupSegments * request_bytes_)) continue;
      SKIPPY_RETURN_IF_ERROR(SyncGroup());
      in_group = 0;
    }
    SKIPPY_RETURN_IF_ERROR(SyncGroup());
    return Milliseconds(start);
  }

 private:
  Status Next() {
    if (pack_ != nullptr) SKIPPY_RETURN_IF_ERROR(pack_->Sync());
    const std::string path = root_ + "/" + std::to_string(next_++);
    OpenOptions create{.create = true, .writable = true, .direct = true};
    SKIPPY_ASSIGN_OR_RETURN(pack_, Env::Posix()->OpenFile(path, create));
    const Status allocated = pack_->Allocate(0, kPackBytes);
    if (!allocated && allocated.error().code != ErrorCode::kUnsupported) return allocated;
    SKIPPY_RETURN_IF_ERROR(pack_->Sync());
    offset_ = kBlock;
    return Env::Posix()->SyncDirectory(root_);
  }
  Status SyncGroup() {
    SKIPPY_RETURN_IF_ERROR(pack_->Sync());
    SKIPPY_RETURN_IF_ERROR(log_->WriteAt(log_offset_, {blocks_.get(), kBlock}));
    log_offset_ += kBlock;
    return log_->Sync();
  }

  const std::string root_;
  const std::size_t request_bytes_;
  const Blocks blocks_;
  std::unique_ptr<File> log_;
  std::unique_ptr<File> pack_;
  std::uint64_t offset_ = 0;
  std::uint64_t log_offset_ = 0;
  int next_ = 0;
};

}  // namespace

Result<BenchReport> RunSpillIo(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  const std::uint64_t total_bytes = options.total_mib * kMiB;
  std::vector<double> spill_mbps;
  std::vector<double> plain_mbps;
  std::vector<double> ratios;
  for (int i = 0; i < options.repeats; ++i) {
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                            Workspace::Create(options.work));
    SKIPPY_ASSIGN_OR_RETURN(const double spill_ms,
                            SpillMilliseconds(options, workspace->path() + "/root"));
    PlainWriter plain(workspace->path() + "/plain", options.bytes_per_token * kSegmentTokens);
    SKIPPY_ASSIGN_OR_RETURN(const double plain_ms, plain.Run(total_bytes));
    spill_mbps.push_back(static_cast<double>(total_bytes) / spill_ms / 1e3);
    plain_mbps.push_back(static_cast<double>(total_bytes) / plain_ms / 1e3);
    ratios.push_back(spill_mbps.back() / plain_mbps.back());
  }
  BenchReport report;
  report.name = "spill-io";
  report.figure = Median(ratios);
  report.unit = "speed of recording until durable / speed of plain writes";
  report.goal = ">= 0.8";
  report.inputs = {{"mib", std::to_string(options.total_mib)},
                   {"bytes_per_token", std::to_string(options.bytes_per_token)},
                   {"spill_mb_per_s", fmt::format("{:.0f}", Median(spill_mbps))},
                   {"plain_mb_per_s", fmt::format("{:.0f}", Median(plain_mbps))},
                   {"repeats", std::to_string(options.repeats)}};
  report.table = FormatTable({{"", "MB/s"},
                              {"recording, until durable", report.inputs["spill_mb_per_s"]},
                              {"plain writes, same syncs", report.inputs["plain_mb_per_s"]},
                              {"ratio", fmt::format("{:.3f}", report.figure)}});
  return report;
}

}  // namespace skippy::bench
