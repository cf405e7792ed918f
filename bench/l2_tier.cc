// One packed entry, filled from the disk and looked up in RAM. Both arms run from before the lookup
// of its token path until the bytes lie in one plain buffer; nothing is printed unless both gave
// the bytes that were recorded. Beside them: the handles alone, which is what an importer uses; the
// same two from the tier by itself, which looks an entry up by its key; a plain copy of as many
// bytes; and the hash that is paid once, at admission.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/check.h"
#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"
#include "ram/ram_pool.h"

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSentinelName[] = "/.skippy-bench-root";
constexpr std::uint64_t kLargestPayloadBytes = 4 * kGiB;

struct Options {
  std::string root;
  std::string work;
  int pairs = 50;
  TokenCount tokens = 0;  // 0: the two described shapes
  std::uint64_t bytes_per_token = 0;
};

// The described system's ratios rest on its own, slower fill.
struct Shape {
  TokenCount tokens = 0;
  std::uint64_t bytes_per_token = 0;
  std::string described_ratio;
  std::uint64_t payload_bytes() const {
    return static_cast<std::uint64_t>(tokens) * bytes_per_token;
  }
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("warm RAM against a cold fill from disk", "skippy bench l2-tier");
  app.add_option("--root", options.root, "folder for the store; must not exist");
  app.add_option("--work", options.work, "folder to make a fresh one in");
  app.add_option("--pairs", options.pairs, "matched pairs")->check(CLI::Range(1, 100000));
  app.add_option("--tokens", options.tokens, "of one shape instead of the described two")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--bytes-per-token", options.bytes_per_token, "of that shape")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  app.add_flag("--tiny", tiny, "few pairs of a small entry");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) {
    options.pairs = 3;
    options.tokens = 600;
    options.bytes_per_token = 256;
  }
  if ((options.tokens == 0) != (options.bytes_per_token == 0)) {
    return MakeError(ErrorCode::kInvalidArgument, "--tokens and --bytes-per-token go together");
  }
  std::uint64_t payload_bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(options.tokens), options.bytes_per_token,
                             &payload_bytes) ||
      payload_bytes > kLargestPayloadBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "--tokens x --bytes-per-token: more than 4 GiB");
  }
  return options;
}

// A folder that this run made and marked; nothing else is ever removed.
class OwnedRoot {
 public:
  static Result<std::unique_ptr<OwnedRoot>> Create(const std::string& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error) || error) {
      return MakeError(ErrorCode::kInvalidArgument, "--root: exists already: " + path);
    }
    if (!std::filesystem::create_directory(path, error)) {
      return MakeError(ErrorCode::kInvalidArgument, "--root: cannot be made: " + path);
    }
    std::unique_ptr<OwnedRoot> root(new OwnedRoot(path));
    if (!(std::ofstream(path + kSentinelName) << "made by skippy bench l2-tier\n")) {
      return MakeError(ErrorCode::kIo, "--root: cannot be written: " + path);
    }
    return root;
  }
  ~OwnedRoot() {
    std::error_code error;
    if (std::filesystem::exists(path_ + kSentinelName, error)) {
      std::filesystem::remove_all(path_, error);
    }
  }
  OwnedRoot(const OwnedRoot&) = delete;
  OwnedRoot& operator=(const OwnedRoot&) = delete;

 private:
  explicit OwnedRoot(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// Whole pages, as buffers of the RAM tier are: a copy between two blocks that lie differently in
// their pages is slower, which is not to be charged to one of the arms.
class PageBytes {
 public:
  explicit PageBytes(std::uint64_t byte_count) : memory_(byte_count + kPageBytes) {
    void* begin = memory_.data();
    std::size_t space = memory_.size();
    SKIPPY_CHECK(std::align(kPageBytes, byte_count, begin, space) != nullptr, "room for a page");
    bytes_ = {static_cast<std::byte*>(begin), byte_count};
  }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  std::vector<std::byte> memory_;
  std::span<std::byte> bytes_;
};

struct Samples {
  std::vector<double> fill_us;
  std::vector<double> warm_us;
  std::vector<double> handles_us;
  std::vector<double> pool_us;
  std::vector<double> pool_copy_us;
  std::vector<double> copy_us;
  std::vector<double> hash_us;
};

class Arms {
 public:
  Arms(const Shape& shape, std::string root)
      : shape_(shape),
        root_(std::move(root)),
        path_(SyntheticPath(7, shape.tokens)),
        expected_memory_(shape.payload_bytes()),
        expected_(expected_memory_.bytes()) {}

  Status Open() {
    for (TokenCount first = 0; first < shape_.tokens; first += kMaxSegmentTokens) {
      FillState(first, SegmentAt(first));
    }
    SKIPPY_ASSIGN_OR_RETURN(
        store_, BenchStore::Open({.directory = root_,
                                  .budget_bytes = 4 * shape_.payload_bytes() + 512 * kMiB,
                                  .bytes_per_token = shape_.bytes_per_token,
                                  .write_queue_bytes = 2 * shape_.payload_bytes() + kMiB,
                                  .ram_budget_bytes = 4 * shape_.payload_bytes() + kMiB}));
    SKIPPY_RETURN_IF_ERROR(store_->Record(path_));
    SKIPPY_RETURN_IF_ERROR(store_->cache().Flush());
    return FillPool();
  }

  Result<Samples> Run(int pairs) {
    Samples out;
    PageBytes filled_memory(expected_.size());
    PageBytes warm_memory(expected_.size());
    const std::span<std::byte> filled = filled_memory.bytes();
    const std::span<std::byte> warm = warm_memory.bytes();
    for (int i = 0; i < pairs; ++i) {
      // A fill stays in RAM when it is the second one.
      if (const Result<double> first_us = Fill(filled); !first_us) return first_us.error();
      SKIPPY_ASSIGN_OR_RETURN(const double fill_us, Fill(filled));
      SKIPPY_ASSIGN_OR_RETURN(const double warm_us, Settled([&] { return Timed(warm); }));
      if (!std::ranges::equal(filled, expected_) || !std::ranges::equal(warm, expected_)) {
        return MakeError(ErrorCode::kInternal, "the two arms gave different bytes");
      }
      SKIPPY_ASSIGN_OR_RETURN(const double handles_us, Settled([&] { return Timed({}); }));
      SKIPPY_ASSIGN_OR_RETURN(const double pool_us, Settled([&] { return ByKey({}); }));
      SKIPPY_ASSIGN_OR_RETURN(const double pool_copy_us, Settled([&] { return ByKey(warm); }));
      SKIPPY_ASSIGN_OR_RETURN(const double copy_us, Settled([&] { return Copy(warm); }));
      out.fill_us.push_back(fill_us);
      out.warm_us.push_back(warm_us);
      out.handles_us.push_back(handles_us);
      out.pool_us.push_back(pool_us);
      out.pool_copy_us.push_back(pool_copy_us);
      out.copy_us.push_back(copy_us);
      out.hash_us.push_back(Hash());
    }
    return out;
  }

 private:
  // The last of a few runs: nothing is charged for what the arm before left cold in the processor.
  template <class Arm>
  static Result<double> Settled(Arm arm) {
    constexpr int kRuns = 5;
    Result<double> us = arm();
    for (int run = 1; run < kRuns && us; ++run) us = arm();
    return us;
  }

  std::span<std::byte> SegmentAt(TokenCount first_token) {
    const auto at = static_cast<std::size_t>(first_token) * shape_.bytes_per_token;
    const std::size_t whole = kMaxSegmentTokens * shape_.bytes_per_token;
    return expected_.subspan(at, std::min(whole, expected_.size() - at));
  }

  // From the disk, with nothing of it in memory.
  Result<double> Fill(std::span<std::byte> into) {
    store_->cache().DropRam(BenchDomain().model);
    SKIPPY_RETURN_IF_ERROR(DropPages(root_));
    return Timed(into, Tier::kDisk);
  }

  // From before the lookup until the bytes lie in `into`, or, where that is empty, until every
  // handle was there; in microseconds.
  Result<double> Timed(std::span<std::byte> into, Tier tier = Tier::kRam) {
    std::size_t filled_bytes = 0;
    bool all_there = true;
    const auto start = Clock::now();
    const Result<TokenCount> tokens = store_->RestoreAll(
        path_, [&](const MatchedSegment& segment, std::span<const std::byte> bytes) {
          all_there = all_there && segment.tier == tier;
          if (!into.empty()) std::memcpy(into.data() + filled_bytes, bytes.data(), bytes.size());
          filled_bytes += bytes.size();
        });
    const double us = MicrosecondsSince(start);
    if (!tokens) return tokens.error();
    if (filled_bytes != expected_.size() || !all_there) {
      return MakeError(ErrorCode::kInternal, "bytes came from another tier than they should");
    }
    return us;
  }

  static Error Wrong() { return MakeError(ErrorCode::kInternal, "other bytes than were recorded"); }

  static double MicrosecondsSince(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  Result<double> Copy(std::span<std::byte> into) const {
    const auto start = Clock::now();
    std::memcpy(into.data(), expected_.data(), expected_.size());
    const double us = MicrosecondsSince(start);
    if (!std::ranges::equal(into.last(1), expected_.last(1))) return Wrong();
    return us;
  }

  // The pool by itself: one entry that is a layout over all segments.
  Status FillPool() {
    RamLayout layout{.token_count = shape_.tokens,
                     .rows_bytes = expected_.size(),
                     .total_bytes = expected_.size()};
    for (TokenCount first = 0; first < shape_.tokens; first += kMaxSegmentTokens) {
      const std::span<const std::byte> bytes = SegmentAt(first);
      const HashedBytes hashed({nullptr, bytes});
      layout.segments.push_back({static_cast<std::uint32_t>(layout.segments.size()),
                                 static_cast<std::uint64_t>(bytes.data() - expected_.data()),
                                 hashed.digest(), hashed.handle()});
    }
    layout.digest = ComputeLayoutDigest(layout.segments);
    pool_ = std::make_unique<RamPool>(expected_.size());
    const RamRefusal refusal = pool_->Admit(RamKey{}, std::move(layout));
    if (refusal == RamRefusal::kNone) return {};
    return MakeError(ErrorCode::kInternal, std::string(ToString(refusal)));
  }

  // Until the handles are there, and the bytes in `into` unless that is empty.
  Result<double> ByKey(std::span<std::byte> into) const {
    const auto start = Clock::now();
    const auto layout = pool_->Get(RamKey{});
    if (!into.empty()) {
      for (const RamLayoutSegment& segment : layout->segments) {
        const std::span<const std::byte> bytes = segment.handle.bytes;
        std::memcpy(into.data() + segment.offset, bytes.data(), bytes.size());
      }
    }
    const double us = MicrosecondsSince(start);
    if (layout->total_bytes != expected_.size()) return Wrong();
    return us;
  }

  double Hash() const {
    const auto start = Clock::now();
    const HashedBytes hashed({nullptr, expected_});
    const double us = MicrosecondsSince(start);
    return hashed.digest().IsZero() ? 0 : us;
  }

  const Shape shape_;
  const std::string root_;
  const std::vector<Token> path_;
  PageBytes expected_memory_;
  const std::span<std::byte> expected_;
  std::unique_ptr<RamPool> pool_;
  std::unique_ptr<BenchStore> store_;
};

std::vector<std::string> Row(const Shape& shape, const Samples& samples) {
  const double warm = Median(samples.warm_us);
  return {fmt::format("{} x {} B", shape.tokens, shape.bytes_per_token),
          fmt::format("{:.0f}", Median(samples.fill_us)),
          fmt::format("{:.0f}", warm),
          fmt::format("{:.1f}", Median(samples.handles_us)),
          fmt::format("{:.2f}", Median(samples.pool_us)),
          fmt::format("{:.0f}", Median(samples.pool_copy_us)),
          fmt::format("{:.0f}", Median(samples.copy_us)),
          fmt::format("{:.2f}", Median(samples.copy_us) / Median(samples.pool_copy_us)),
          fmt::format("{:.2f}", Median(samples.copy_us) / warm),
          fmt::format("{:.1f}", Median(samples.fill_us) / warm),
          fmt::format("{:.0f}", Median(samples.fill_us) / Median(samples.handles_us)),
          shape.described_ratio,
          fmt::format("{:.0f}", Median(samples.hash_us))};
}

}  // namespace

Result<BenchReport> RunL2Tier(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  std::unique_ptr<OwnedRoot> owned;
  std::unique_ptr<Workspace> workspace;
  if (!options.root.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(owned, OwnedRoot::Create(options.root));
  } else {
    SKIPPY_ASSIGN_OR_RETURN(workspace, Workspace::Create(options.work));
  }
  const std::string folder = owned ? options.root : workspace->path();
  std::vector<Shape> shapes = {{1893, 512, "54"}, {3994, 4096, "38"}};
  if (options.tokens != 0) shapes = {{options.tokens, options.bytes_per_token, ""}};
  std::vector<std::vector<std::string>> rows = {
      {"entry", "fill us", "warm us", "handles us", "by key us", "by key, copied us", "copy us",
       "copy/by key", "copy/warm", "fill/warm", "fill/handles", "described", "hash us"}};
  BenchReport report;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    Arms arms(shapes[i], folder + "/store-" + std::to_string(i));
    SKIPPY_RETURN_IF_ERROR(arms.Open());
    SKIPPY_ASSIGN_OR_RETURN(const Samples samples, arms.Run(options.pairs));
    rows.push_back(Row(shapes[i], samples));
    const double ratio = Median(samples.copy_us) / Median(samples.pool_copy_us);
    report.figure = i == 0 ? ratio : std::min(report.figure, ratio);
    const std::string shape = rows.back().front();
    report.inputs["l2_lookup_to_usable_bytes_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.warm_us));
    report.inputs["l2_handle_lookup_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.pool_us));
    report.inputs["l2_lookup_by_key_to_usable_bytes_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.pool_copy_us));
    report.inputs["l2_request_path_handles_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.handles_us));
    report.inputs["l3_fill_to_usable_bytes_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.fill_us));
    report.inputs["admission_hash_ns, " + shape] =
        fmt::format("{:.0f}", 1e3 * Median(samples.hash_us));
  }
  report.name = "l2-tier";
  report.unit = "of a plain copy's speed, lookup by key included (lowest of the shapes)";
  report.goal = ">= 0.9; handles by key <= 5 us";
  report.inputs["pairs"] = std::to_string(options.pairs);
  report.table = FormatTable(rows);
  return report;
}

}  // namespace skippy::bench
