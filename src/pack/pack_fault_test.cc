// Goal: what PackStore promises when the medium fails: no pack is handed out before it is durable,
// a failed sync seals its pack and no other, a full disk is a refusal, and a crash at any point
// leaves a directory that opens, with every synced object intact. Method: FaultEnv; crash at every
// sync and every change of a scripted run, under every policy and several seeds (printed on
// failure).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/fault_env.h"
#include "pack/pack_format.h"
#include "pack/pack_store.h"

namespace skippy {
namespace {

constexpr std::uint64_t kPackBytes = 16 * kBlockBytes;
constexpr std::uint64_t kPayloadBytes = kPackBytes - kBlockBytes;

std::vector<std::byte> Filled(char value, std::size_t byte_count) {
  return std::vector<std::byte>(byte_count, static_cast<std::byte>(value));
}

std::unique_ptr<PackStore> OpenOn(Env& env) {
  PackStoreOptions options;
  options.directory = "/packs";
  options.pack_bytes = kPackBytes;
  options.capacity_bytes = 4 * kPackBytes;
  auto store = PackStore::Open(&env, options);
  EXPECT_TRUE(store) << store.error().text;
  return store ? std::move(*store) : nullptr;
}

bool Holds(PackStore& store, const ExtentList& extents, char value, std::size_t byte_count) {
  std::vector<std::byte> bytes(byte_count);
  return store.Read(extents, bytes).has_value() && bytes == Filled(value, byte_count);
}

class PackFaultTest : public testing::Test {
 protected:
  PackFaultTest() {
    env_.CreateDirectories("/packs");
    EXPECT_TRUE(env_.SyncDirectory("/"));
    store_ = OpenOn(env_);
    store_->FinishRecovery();
  }
  ExtentList Store(char value, std::size_t byte_count) {
    auto extents = store_->Allocate(byte_count);
    EXPECT_TRUE(extents) << extents.error().text;
    EXPECT_TRUE(store_->Write(*extents, Filled(value, byte_count)));
    return *extents;
  }

  FaultEnv env_;
  std::unique_ptr<PackStore> store_;
};

// Proves D22.
TEST_F(PackFaultTest, NewPackIsDurableBeforeItsFirstExtentIsHandedOut) {
  const auto extents = store_->Allocate(1);
  ASSERT_TRUE(extents);
  EXPECT_EQ(env_.pending_changes(), 0u);
  const auto after = env_.AfterCrash(CrashPolicy::kDropAll, 1);
  EXPECT_TRUE(OpenOn(*after)->MarkUsed(*extents));
}

// Proves D21, D39, D43.
TEST_F(PackFaultTest, FailureAtAnyStepOfMakingAPackLeavesNothingBehind) {
  for (const FileOpKind kind :
       {FileOpKind::kCreateFile, FileOpKind::kAllocate, FileOpKind::kWrite, FileOpKind::kSync,
        FileOpKind::kRename, FileOpKind::kSyncDirectory}) {
    env_.Inject({.kind = kind});
    EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kIo);
    EXPECT_TRUE(env_.ListDirectory("/packs")->empty());
    EXPECT_EQ(store_->Usage().physical_bytes, 0u);
  }
  EXPECT_TRUE(store_->Allocate(1));
}

TEST_F(PackFaultTest, FailedSyncSealsThePackAndOthersGoOn) {
  const ExtentList durable = Store('d', kBlockBytes);
  ASSERT_TRUE(store_->Sync());
  const ExtentList lost = Store('a', kBlockBytes);
  env_.Inject({.kind = FileOpKind::kSync});
  EXPECT_EQ(store_->Sync().error().code, ErrorCode::kIo);
  store_->Free(lost);
  EXPECT_TRUE(Holds(*store_, durable, 'd', kBlockBytes));
  const ExtentList next = Store('b', kPayloadBytes);
  EXPECT_NE(next.front().pack, durable.front().pack);
  EXPECT_EQ(next.size(), 1U);
  EXPECT_TRUE(store_->Sync());
  EXPECT_TRUE(Holds(*store_, next, 'b', kPayloadBytes));
  EXPECT_EQ(store_->Usage().quarantined_bytes, kPayloadBytes - kBlockBytes);
  store_->Free(durable);
  EXPECT_EQ(store_->Usage().quarantined_bytes, kPayloadBytes);
}

TEST_F(PackFaultTest, FailedReadsAndWritesAreReported) {
  const ExtentList extents = Store('a', 100);
  std::vector<std::byte> bytes(100);
  env_.Inject({.kind = FileOpKind::kRead});
  EXPECT_EQ(store_->Read(extents, bytes).error().code, ErrorCode::kIo);
  EXPECT_TRUE(store_->Read(extents, bytes));
  env_.Inject({.kind = FileOpKind::kWrite, .applied_bytes = 512});
  EXPECT_EQ(store_->Write(extents, bytes).error().code, ErrorCode::kIo);
}

TEST_F(PackFaultTest, FullDiskIsARefusalAndPreallocatedPacksGoOn) {
  Store('a', 100);
  env_.SetFreeBytes(kPackBytes - 1);
  const ExtentList rest = Store('b', kPayloadBytes - kBlockBytes);
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(Holds(*store_, rest, 'b', kPayloadBytes - kBlockBytes));
  env_.SetFreeBytes(kPackBytes);
  EXPECT_TRUE(store_->Allocate(1));
}

// On copy-on-write file systems nothing is preallocated: what packs may still take is reserved.
TEST_F(PackFaultTest, CountsPromisedSpaceWhereItCannotBePreallocated) {
  env_.SetFilesystem(FilesystemKind::kCopyOnWrite);
  env_.SetFreeBytes(2 * kPackBytes);
  ASSERT_TRUE(store_->Allocate(kPayloadBytes));
  ASSERT_TRUE(store_->Allocate(kPayloadBytes));
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kNoSpace);
}

TEST_F(PackFaultTest, PackThatCannotBeDeletedStaysInUse) {
  store_->Free(Store('a', 100));
  env_.Inject({.kind = FileOpKind::kRemoveFile});
  EXPECT_EQ(store_->DeleteEmptyPacks(0).error().code, ErrorCode::kIo);
  EXPECT_EQ(store_->Usage().physical_bytes, kPackBytes);
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), kPackBytes);
}

// One allocation waits in the middle of making a pack while another thread reads: readers do not
// wait for disk work of others.
TEST_F(PackFaultTest, ReadersGoOnWhileAPackIsMade) {
  const ExtentList extents = Store('a', kPayloadBytes);
  std::atomic<bool> checked = false;
  env_.SetHook([&](const FileOp& op) {
    if (op.kind == FileOpKind::kAllocate && !checked) {
      checked = Holds(*store_, extents, 'a', kPayloadBytes);
    }
  });
  EXPECT_TRUE(store_->Allocate(1));
  EXPECT_TRUE(checked);
}

// What the outside knows: objects whose Sync returned are durable until their Free is allowed.
struct Ledger {
  struct Object {
    ExtentList extents;
    char value = 0;
    std::size_t byte_count = 0;
  };
  std::map<int, Object> durable;
};

// Writes, syncs, frees, reuses and deletes over several packs, keeping the ledger.
class Script {
 public:
  Script(PackStore& store, Ledger& ledger) : store_(store), ledger_(ledger) {}

  void Run() {
    Put(1, 'a', kPayloadBytes - 100);
    Put(2, 'b', 3 * kBlockBytes + 1);
    Put(3, 'c', kPayloadBytes + 5000);
    Remove(1);
    Put(4, 'd', 5 * kBlockBytes);
    Put(5, 'e', 7 * kBlockBytes);
    Remove(3);
    const auto deleted = store_.DeleteEmptyPacks(0);
    Put(6, 'f', kPayloadBytes);
    ok_ = ok_ && deleted;
  }
  bool ok() const { return ok_; }

 private:
  void Put(int key, char value, std::size_t byte_count) {
    auto extents = store_.Allocate(byte_count);
    if (!extents || !store_.Write(*extents, Filled(value, byte_count)) || !store_.Sync()) {
      ok_ = false;
      return;
    }
    ledger_.durable[key] = {*extents, value, byte_count};
  }
  void Remove(int key) {
    const auto it = ledger_.durable.find(key);
    if (it != ledger_.durable.end()) {
      const ExtentList extents = it->second.extents;
      ledger_.durable.erase(it);
      store_.Free(extents);
    }
  }

  PackStore& store_;
  Ledger& ledger_;
  bool ok_ = true;
};

// Opens what a crash left and checks it against the ledger of that moment.
void ExpectIntact(const FaultEnv& env, const Ledger& ledger, CrashPolicy policy,
                  std::uint64_t seed) {
  const auto after = env.AfterCrash(policy, seed);
  const auto store = OpenOn(*after);
  ASSERT_NE(store, nullptr);
  for (const auto& [key, object] : ledger.durable) {
    ASSERT_TRUE(store->MarkUsed(object.extents)) << "object " << key;
    ASSERT_TRUE(Holds(*store, object.extents, object.value, object.byte_count)) << key;
  }
  ASSERT_TRUE(store->foreign_files().empty());
  ASSERT_LE(store->Usage().physical_bytes, 4 * kPackBytes);
  store->FinishRecovery();
  ASSERT_EQ(after->ListDirectory("/packs")->size(), store->Usage().pack_count);
}

TEST_F(PackFaultTest, CrashAtEveryPointLosesNothingThatWasSynced) {
  Ledger ledger;
  std::size_t crash_points = 0;
  env_.SetHook([&](const FileOp& op) {
    if (op.kind == FileOpKind::kRead) {
      return;
    }
    const auto check = [&](CrashPolicy policy, std::uint64_t seed) {
      SCOPED_TRACE("point " + std::to_string(crash_points) + " seed " + std::to_string(seed));
      ExpectIntact(env_, ledger, policy, seed);
      ++crash_points;
    };
    check(CrashPolicy::kApplyAll, 0);
    check(CrashPolicy::kDropAll, 0);
    check(CrashPolicy::kTearLast, 0);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      check(CrashPolicy::kRandom, seed);
    }
  });
  Script script(*store_, ledger);
  script.Run();
  EXPECT_TRUE(script.ok());
  RecordProperty("crash_points", static_cast<int>(crash_points));
  EXPECT_GT(crash_points, 300u);
}

}  // namespace
}  // namespace skippy
