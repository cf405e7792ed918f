// Goal: whatever bit of the store is wrong and wherever a file ends, no wrong byte is served,
// nothing appears under another identity, the cache opens and takes new state, and a catalog that
// cannot be read is a cold start that says so. Method: a small store, closed cleanly or left by a
// crash with its log; one bit of one byte is flipped, or one file cut, then the store is opened and
// read completely. Every byte of the fields of headers, samples of the rest; SKIPPY_SWEEP_FULL=1
// takes every byte of pack headers and of the catalog.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr char kRoot[] = "/cache/root";
constexpr std::uint64_t kPackHeaderBytes = 4096;
constexpr std::uint64_t kSqliteHeaderBytes = 100;
constexpr std::uint64_t kCutBytes = 4096;
// Prime: samples wander over all places within rows and pages.
constexpr std::uint64_t kCatalogStride = 131;
constexpr std::uint64_t kHeaderFieldBytes = 128;
constexpr std::uint64_t kHeaderStride = 31;
constexpr std::uint64_t kPayloadStride = 4099;

struct KnownPath {
  DomainSpec spec;
  std::vector<Token> tokens;
};

class CorruptionSweepTest : public testing::Test {
 protected:
  CorruptionSweepTest() {
    spdlog::set_level(spdlog::level::off);
    options_.disk = {.mode = DiskMode::kFixed,
                     .directory = kRoot,
                     .budget_bytes = 16 * kMiB,
                     .minimum_free_bytes = 0,
                     .pack_bytes = 256 * kKiB};
    options_.read_threads = 1;
    live_.CreateDirectories("/cache");
    const auto head = MakePath(1, 100);
    paths_ = {{SpecOf(1, 1, ""), Join(head, MakePath(2, 60))},
              {SpecOf(1, 1, ""), Join(head, MakePath(3, 190))},
              {SpecOf(2, 1, "tenant"), MakePath(4, 120)},
              {SpecOf(1, 1, ""), MakePath(5, 90)}};
    auto opened = Cache::Open(options_, &live_);
    const std::unique_ptr<Cache> cache = std::move(opened.value());
    for (const KnownPath& path : paths_) RecordDurably(*cache, path);
    crashed_ = live_.AfterCrash(CrashPolicy::kApplyAll, 0);
    EXPECT_TRUE(cache->Close());
    closed_ = live_.AfterCrash(CrashPolicy::kApplyAll, 0);
  }

  static void RecordDurably(Cache& cache, const KnownPath& path) {
    EXPECT_EQ(Record(cache, cache.OpenDomain(path.spec).value(), path.tokens),
              RefusalReason::kNone);
    EXPECT_TRUE(cache.Flush());
  }
  static std::uint64_t Stride(std::uint64_t sampled) {
    return std::getenv("SKIPPY_SWEEP_FULL") != nullptr ? 1 : sampled;
  }
  static std::vector<std::string> Files(Env* env) {
    std::vector<std::string> out;
    for (const std::string& folder : {std::string(kRoot), std::string(kRoot) + "/packs"}) {
      const std::vector<std::string> names = env->ListDirectory(folder).value();
      for (const std::string& name : names) {
        const std::string path = folder + "/" + name;
        if (env->Stat(path)->kind == FileKind::kRegular) out.push_back(path);
      }
    }
    return out;
  }
  static bool IsPack(const std::string& path) { return path.find("/packs/") != path.npos; }
  static std::uint64_t FileBytes(Env* env, const std::string& path) {
    return env->Stat(path)->file_bytes;
  }

  // A log whose end is damaged looks like one that was never written further, and an empty database
  // like none; all other damage is seen as such.
  static bool IsSilent(const std::string& path, std::uint64_t file_bytes) {
    return path.find("-wal") != path.npos || (!IsPack(path) && file_bytes == 0);
  }
  void FlipAndCheck(const FaultEnv& image, const std::string& path, std::uint64_t offset) {
    SCOPED_TRACE("a bit of byte " + std::to_string(offset) + " of " + path);
    const auto env = image.AfterCrash(CrashPolicy::kApplyAll, 0);
    {
      const auto file = env->OpenFile(path, {.writable = true}).value();
      std::byte byte{};
      ASSERT_EQ(file->ReadAt(offset, {&byte, 1}).value(), 1U);
      byte ^= std::byte{1} << (offset % 8);
      ASSERT_TRUE(file->WriteAt(offset, {&byte, 1}));
    }
    OpenAndCheck(env.get(), IsSilent(path, 1));
  }
  void CutAndCheck(const FaultEnv& image, const std::string& path, std::uint64_t byte_count) {
    SCOPED_TRACE(path + " cut to " + std::to_string(byte_count));
    const auto env = image.AfterCrash(CrashPolicy::kApplyAll, 0);
    ASSERT_TRUE(env->OpenFile(path, {.writable = true}).value()->Truncate(byte_count));
    OpenAndCheck(env.get(), IsSilent(path, byte_count));
  }

  void OpenAndCheck(Env* env, bool silent) {
    ++images_;
    auto opened = Cache::Open(options_, env);
    ASSERT_TRUE(opened) << opened.error().text;
    Cache& cache = **opened;
    const CacheStatus status = cache.GetStatus();
    CheckIdentities(status);
    if (status.disk_state != TierState::kActive) {
      ++unusable_;
      EXPECT_EQ(status.disk_state, TierState::kDegraded);
      EXPECT_NE(status.disk_reason, "");
      return;
    }
    const bool cold = status.activity.last_error.find("started cold") != std::string::npos;
    cold_ += cold;
    TokenCount found = 0;
    for (const KnownPath& path : paths_) found += CheckPath(cache, path);
    if (cold) {
      EXPECT_EQ(found, 0);
    }
    ReportsLosses(status, cache.GetStatus(), found, silent);
    const KnownPath fresh{SpecOf(1, 1, ""), MakePath(9, 80)};
    Record(cache, cache.OpenDomain(fresh.spec).value(), fresh.tokens);
    EXPECT_TRUE(cache.Flush());
    // Damage that only a commit meets stops recording until the next start, and says so.
    const TokenCount recorded = CheckPath(cache, fresh);
    EXPECT_TRUE(recorded == 80 || cache.GetStatus().disk_state == TierState::kDegraded);
    EXPECT_TRUE(cache.Close());
  }
  // What is not there any more was seen: at start or when it was read.
  void ReportsLosses(const CacheStatus& opened, const CacheStatus& read, TokenCount found,
                     bool silent) {
    TokenCount all = 0;
    for (const KnownPath& path : paths_) all += static_cast<TokenCount>(path.tokens.size());
    if (found == all) return;
    ++lossy_;
    const Reconciliation& start = opened.reconciliation;
    EXPECT_TRUE(silent || !read.activity.last_error.empty() || read.activity.corrupt_entries > 0 ||
                start.quarantined_manifests > 0 || start.removed_prefix_links > 0 ||
                start.removed_orphan_bytes > 0)
        << found << " of " << all << " tokens";
  }
  void CheckIdentities(const CacheStatus& status) {
    for (const InventoryEntry& entry : status.inventory) {
      bool known = false;
      for (const KnownPath& path : paths_) {
        known = known || (entry.model == path.spec.model && entry.state == path.spec.state);
      }
      EXPECT_TRUE(known) << "a prefix of an identity that was never used";
    }
  }
  static TokenCount CheckPath(Cache& cache, const KnownPath& path) {
    const DomainId domain = cache.OpenDomain(path.spec).value();
    cache.WarmPath(domain, path.tokens, ResumeRule::kAnyToken);
    PrefixMatch match = cache.Lookup(
        domain, path.tokens, static_cast<TokenCount>(path.tokens.size()), ResumeRule::kAnyToken);
    const Restored restored = RestoreAndCheck(cache, std::move(match), path.tokens);
    EXPECT_FALSE(restored.wrong_byte);
    return restored.tokens;
  }
  void Print(const char* what) const {
    std::printf("%s: %d images; %d of them lost something, %d cold, %d unusable\n", what, images_,
                lossy_, cold_, unusable_);
  }

  CacheOptions options_;
  FaultEnv live_;
  std::vector<KnownPath> paths_;
  std::unique_ptr<FaultEnv> closed_;   // closed cleanly
  std::unique_ptr<FaultEnv> crashed_;  // with a log that waits to be replayed
  int images_ = 0;
  int lossy_ = 0;
  int cold_ = 0;
  int unusable_ = 0;
};

// Proves D58.
TEST_F(CorruptionSweepTest, AFlippedBitOfAPackNeverServesAWrongByte) {
  for (const std::string& path : Files(closed_.get())) {
    if (!IsPack(path)) continue;
    for (std::uint64_t at = 0; at < kPackHeaderBytes && !HasFailure();
         at += at < kHeaderFieldBytes ? 1 : Stride(kHeaderStride)) {
      FlipAndCheck(*closed_, path, at);
    }
    const std::uint64_t file_bytes = FileBytes(closed_.get(), path);
    for (std::uint64_t at = kPackHeaderBytes; at < file_bytes && !HasFailure();
         at += kPayloadStride) {
      FlipAndCheck(*closed_, path, at);
    }
  }
  Print("packs");
  EXPECT_GT(lossy_, 0);
}

// Proves D58.
TEST_F(CorruptionSweepTest, AFlippedBitOfTheCatalogIsSeenBeforeItIsUsed) {
  for (FaultEnv* image : {closed_.get(), crashed_.get()}) {
    for (const std::string& path : Files(image)) {
      if (IsPack(path)) continue;
      const std::uint64_t file_bytes = FileBytes(image, path);
      for (std::uint64_t at = 0; at < file_bytes && !HasFailure();
           at += at < kSqliteHeaderBytes ? 1 : Stride(kCatalogStride)) {
        FlipAndCheck(*image, path, at);
      }
    }
  }
  Print("catalog");
  EXPECT_GT(lossy_, 0);
  EXPECT_GT(cold_, 0);
}

// Proves D65.
TEST_F(CorruptionSweepTest, AFileThatEndsAnywhereNeverServesAWrongByte) {
  for (FaultEnv* image : {closed_.get(), crashed_.get()}) {
    for (const std::string& path : Files(image)) {
      const std::uint64_t file_bytes = FileBytes(image, path);
      for (std::uint64_t at = 0; at < file_bytes && !HasFailure(); at += kCutBytes) {
        CutAndCheck(*image, path, at);
        if (!IsPack(path)) CutAndCheck(*image, path, at + kCutBytes / 2 + 100);
      }
    }
  }
  Print("cuts");
  EXPECT_GT(lossy_, 0);
}

}  // namespace
}  // namespace skippy
