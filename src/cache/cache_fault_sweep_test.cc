// Goal: whichever call to the operating system fails, and however little space there is or how slow
// the disk, no request fails, no wrong byte is served, the budget and the reserve hold, and the
// next start finds a store that works. Method: one script of everything a cache does; the n-th call
// of each kind fails, once or from then on, for every n that the script reaches; then the file
// system is good again, the store is opened anew and used. The same with the file system full at
// every 128 KiB.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/log.h"
#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr std::uint64_t kBudgetBytes = 6 * kMiB;
// Later calls repeat what earlier ones did.
constexpr std::uint64_t kLargestNth = 40;

struct Kind {
  FileOpKind kind;
  const char* path;
  const char* name;
};

class CacheFaultSweepTest : public CacheFixture {
 protected:
  CacheFaultSweepTest() {
    spdlog::set_level(spdlog::level::off);
    options_.disk.budget_bytes = kBudgetBytes;
    options_.disk.pack_bytes = 256 * kKiB;
    options_.read_threads = 1;
  }
  static std::vector<Token> Path(std::uint32_t i) { return MakePath(500 + i, 150 + 10 * (i % 3)); }

  void RecordAndRead(std::uint32_t i) {
    const auto path = Path(i);
    Record(*cache_, domain_, path);
    ASSERT_TRUE(cache_->Flush());
    ExpectNothingWrong(path);
  }
  void ExpectNothingWrong(std::span<const Token> path) {
    EXPECT_FALSE(Restore(path).wrong_byte);
    EXPECT_LE(PhysicalBytes(), options_.disk.budget_bytes);
  }
  // While calls fail, what an operator asked for may fail, too.
  template <class T>
  static void IgnoreOutcome(const T&) {}
  // More than fits, with everything an operator does.
  void RunScript() {
    domain_ = DomainId::kNone;
    Open();
    for (std::uint32_t i = 0; i < 8; ++i) RecordAndRead(i);
    IgnoreOutcome(cache_->Prune(5 * kMiB, std::nullopt));
    for (std::uint32_t i = 8; i < 30; ++i) RecordAndRead(i);
    IgnoreOutcome(cache_->SetDiskLimits(5 * kMiB, 0));
    RecordAndRead(30);
    IgnoreOutcome(cache_->SetDiskLimits(kBudgetBytes, 0));
    IgnoreOutcome(cache_->Clear(SpecOf(2, 1, "").model));
    for (std::uint32_t i = 25; i < 34; ++i) RecordAndRead(i);
    IgnoreOutcome(cache_->Close());
    cache_.reset();
  }
  void ExpectAWorkingStore() {
    Open();
    ASSERT_EQ(cache_->GetStatus().disk_state, TierState::kActive)
        << cache_->GetStatus().disk_reason;
    for (std::uint32_t i = 0; i < 34; ++i) {
      const Restored restored = Restore(Path(i));
      EXPECT_FALSE(restored.wrong_byte);
      EXPECT_FALSE(restored.failed) << "a path that the start let pass";
    }
    const auto path = MakePath(99, 300);
    RecordDurably(path);
    ExpectRestores(path, 300);
    EXPECT_LE(PhysicalBytes(), options_.disk.budget_bytes);
    ASSERT_TRUE(cache_->Clear(std::nullopt));
    EXPECT_EQ(cache_->GetStatus().disk.payload_bytes, 0U);
    EXPECT_EQ(cache_->GetStatus().disk.quarantined_objects, 0U);
  }
  void FailAndRecover(const Kind& kind, std::uint64_t nth, std::uint64_t repeat) {
    SCOPED_TRACE(std::string(kind.name) + " " + std::to_string(nth) +
                 (repeat == 1 ? ", once" : ", from then on"));
    cache_.reset();
    MakeFileSystem();
    fault_env_->Inject(
        {.kind = kind.kind, .nth = nth, .repeat = repeat, .path_contains = kind.path});
    RunScript();
    fault_env_->ClearFaults();
    ExpectAWorkingStore();
  }
};

// Proves D57 and P6.
TEST_F(CacheFaultSweepTest, NoFailedCallCostsMoreThanWhatItWasFor) {
  const Kind kinds[] = {{FileOpKind::kWrite, "/packs/", "write of a pack"},
                        {FileOpKind::kWrite, "catalog", "write of the catalog"},
                        {FileOpKind::kRead, "catalog", "read of the catalog"},
                        {FileOpKind::kSync, "/packs/", "sync of a pack"},
                        {FileOpKind::kSync, "catalog", "sync of the catalog"},
                        {FileOpKind::kAllocate, "", "allocation"},
                        {FileOpKind::kPunchHole, "", "hole"},
                        {FileOpKind::kTruncate, "", "cut"},
                        {FileOpKind::kCreateFile, "", "new file"},
                        {FileOpKind::kRemoveFile, "", "removal"},
                        {FileOpKind::kRename, "", "new name"},
                        {FileOpKind::kSyncDirectory, "", "sync of a directory"}};
  int runs = 0;
  for (const Kind& kind : kinds) {
    for (std::uint64_t nth = 1; nth <= kLargestNth && !HasFailure(); nth += 1 + nth / 2) {
      FailAndRecover(kind, nth, 1);
      FailAndRecover(kind, nth, Fault::kForever);
      runs += 2;
    }
  }
  std::printf("%d runs of the script with a fault\n", runs);
}

// Proves D40.
TEST_F(CacheFaultSweepTest, AFullFileSystemIsNeitherAnErrorNorTheEnd) {
  for (std::uint64_t free_bytes = 0; free_bytes <= 7 * kMiB && !HasFailure();
       free_bytes += 128 * kKiB) {
    SCOPED_TRACE(std::to_string(free_bytes) + " bytes free");
    cache_.reset();
    MakeFileSystem();
    fault_env_->SetFreeBytes(free_bytes);
    RunScript();
    fault_env_->SetFreeBytes(kGiB);
    ExpectAWorkingStore();
  }
}

// A disk that stands still delays what is recorded, and nobody who looks something up.
// Proves D71.
TEST_F(CacheFaultSweepTest, ASlowDiskHoldsUpNoLookup) {
  const auto known = MakePath(1, 200);
  Mutex mu;
  CondVar changed;
  bool stands_still = false;
  fault_env_->SetHook([&](const FileOp& op) {
    if (op.kind == FileOpKind::kRead) return;
    MutexLock lock(mu);
    while (stands_still) changed.Wait(mu);
  });
  Open();
  RecordDurably(known);
  const std::uint64_t written_bytes = cache_->GetStatus().activity.bytes_written;
  {
    MutexLock lock(mu);
    stands_still = true;
  }
  const auto waiting = MakePath(2, 200);
  ASSERT_EQ(Record(*cache_, domain_, waiting), RefusalReason::kNone);
  EXPECT_EQ(Found(known), 200);
  ExpectRestores(known, 200);
  ExpectRestores(waiting, 200);
  EXPECT_EQ(cache_->GetStatus().activity.bytes_written, written_bytes);
  {
    MutexLock lock(mu);
    stands_still = false;
    changed.NotifyAll();
  }
  ASSERT_TRUE(cache_->Flush());
  EXPECT_GT(cache_->GetStatus().activity.bytes_written, written_bytes);
  cache_.reset();
}

}  // namespace
}  // namespace skippy
