// Goal: what is read while it is removed, and its blocks wanted by others, is read right or not at
// all, and nobody is blamed for it. Method: a hook stops the disk in the middle of a restore's
// read; meanwhile everything is cleared and something else recorded in a store with little room;
// then the read goes on. Ten thousand times.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr int kRounds = 10'000;
constexpr int kDamagedRounds = 60;
constexpr TokenCount kPartTokens = 40;

// Stops one read of a pack.
class ReadGate {
 public:
  void Pass(const FileOp& op) {
    if (op.kind != FileOpKind::kRead || op.path.find("/packs/") == std::string::npos) return;
    MutexLock lock(mu_);
    if (!std::exchange(armed_, false)) return;
    stopped_ = true;
    changed_.NotifyAll();
    while (stopped_) changed_.Wait(mu_);
  }
  // The next read stops.
  void Arm() {
    MutexLock lock(mu_);
    armed_ = true;
  }
  void WaitForReader() {
    MutexLock lock(mu_);
    while (!stopped_) changed_.Wait(mu_);
  }
  void Open() {
    MutexLock lock(mu_);
    armed_ = stopped_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool armed_ GUARDED_BY(mu_) = false;
  bool stopped_ GUARDED_BY(mu_) = false;
};

class CacheRaceTest : public CacheFixture {
 protected:
  CacheRaceTest() {
    options_.disk.budget_bytes = 8 * kMiB;
    options_.disk.pack_bytes = 256 * kKiB;
    options_.read_threads = 2;
    options_.read_ahead_segments = 1;
    fault_env_->SetHook([this](const FileOp& op) { gate_.Pass(op); });
    Open();
  }
  ~CacheRaceTest() override {
    gate_.Open();
    cache_.reset();
  }

  static std::vector<Token> Path(int round) {
    return MakePath(static_cast<std::uint32_t>(round), kPartTokens);
  }
  std::unique_ptr<skippy::Restore> Start(std::span<const Token> path) {
    return cache_->StartRestore(Lookup(path), path, wake_.callback());
  }
  // The part that is handed out next, which begins at `first`.
  void ExpectRightBytes(skippy::Restore& restore, std::span<const Token> path, TokenCount first) {
    for (;;) {
      const int seen = wake_.count();
      const skippy::Restore::State state = restore.Poll();
      if (state != skippy::Restore::State::kPending) {
        ASSERT_EQ(state, skippy::Restore::State::kReady);
        break;
      }
      wake_.WaitAfter(seen);
    }
    const auto rows = RowsOf(path, first, first + kPartTokens);
    ASSERT_EQ(restore.segment().first_token, first);
    ASSERT_EQ(std::memcmp(restore.bytes().data(), rows.data(), rows.size()), 0);
  }
  // Flips a bit of the path's first row wherever a pack holds it, and has it found.
  void DamageAndRead(std::span<const Token> path) {
    const auto row = RowsOf(path, 0, 1);
    bool flipped = false;
    const std::string packs = options_.disk.directory + "/packs";
    const std::vector<std::string> names = env_->ListDirectory(packs).value();
    for (const std::string& name : names) {
      const auto file = env_->OpenFile(packs + "/" + name, {.writable = true}).value();
      std::vector<std::byte> bytes(file->FileBytes().value());
      ASSERT_TRUE(file->ReadAt(0, bytes));
      const auto at = std::search(bytes.begin(), bytes.end(), row.begin(), row.end());
      if (at == bytes.end()) continue;
      const std::byte other = *at ^ std::byte{4};
      ASSERT_TRUE(file->WriteAt(static_cast<std::uint64_t>(at - bytes.begin()), {&other, 1}));
      flipped = true;
    }
    ASSERT_TRUE(flipped);
    EXPECT_TRUE(Restore(path).failed);
  }

  ReadGate gate_;
  WakeSignal wake_;
};

// The restore goes on, or is given up: either way nobody takes the blocks from under its read.
// Proves D60.
TEST_F(CacheRaceTest, ReusingBlocksNeverReachesARestoreInFlight) {
  RecordDurably(Path(0));
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    const auto path = Path(round);
    gate_.Arm();
    auto restore = Start(path);
    gate_.WaitForReader();
    const bool goes_on = round % 2 == 0;
    if (!goes_on) restore.reset();
    ASSERT_TRUE(cache_->Clear(std::nullopt));
    RecordDurably(Path(round + 1));
    gate_.Open();
    if (goes_on) ExpectRightBytes(*restore, path, 0);
  }
  const CacheStatus status = cache_->GetStatus();
  EXPECT_EQ(status.disk.quarantined_objects, 0U);
  EXPECT_EQ(status.activity.corrupt_entries, 0U);
  EXPECT_EQ(status.activity.last_error, "");
}

// What lies below a damaged segment is removed whoever reads it; its blocks wait for the reader.
TEST_F(CacheRaceTest, BlocksOfWhatIsRemovedUnderARestoreWaitForItsRead) {
  for (int round = 0; round < kDamagedRounds && !HasFailure(); ++round) {
    const auto head = Path(2 * round);
    const auto path = Join(head, Path(2 * round + 1));
    RecordDurably(head);
    RecordDurably(path);
    auto restore = Start(path);
    ExpectRightBytes(*restore, path, 0);
    gate_.Arm();
    restore->Pop();
    gate_.WaitForReader();
    DamageAndRead(head);
    EXPECT_EQ(Found(path), 0);
    for (int i = 0; i < 4; ++i) RecordDurably(Path(100'000 + 4 * round + i));
    gate_.Open();
    ExpectRightBytes(*restore, path, kPartTokens);
  }
  EXPECT_EQ(cache_->GetStatus().disk.quarantined_objects,
            static_cast<std::uint64_t>(kDamagedRounds));
}

}  // namespace
}  // namespace skippy
