// Goal: the crash model is neither kinder nor harsher than it says: durable changes always survive,
// others may not, faults strike exactly where they were put. Method: small histories by hand.
#include "env/fault_env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace skippy {
namespace {

constexpr CrashPolicy kPolicies[] = {CrashPolicy::kApplyAll, CrashPolicy::kDropAll,
                                     CrashPolicy::kTearLast, CrashPolicy::kRandom};

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::unique_ptr<File> Open(Env& env, const std::string& path) {
  OpenOptions options;
  options.create = options.writable = true;
  auto file = env.OpenFile(path, options);
  EXPECT_TRUE(file) << file.error().text;
  return std::move(*file);
}

// nullopt when the file is not there.
std::optional<std::string> Contents(Env& env, const std::string& path) {
  auto file = env.OpenFile(path, {});
  if (!file) {
    return std::nullopt;
  }
  std::string out((*file)->FileBytes().value(), '?');
  EXPECT_TRUE((*file)->ReadAt(0, std::as_writable_bytes(std::span(out))));
  return out;
}

class FaultEnvTest : public testing::Test {
 protected:
  // A file whose name and contents are durable.
  std::unique_ptr<File> Durable(const std::string& path, const std::string& text) {
    auto file = Open(env_, path);
    EXPECT_TRUE(file->WriteAt(0, BytesOf(text)));
    EXPECT_TRUE(file->Sync());
    EXPECT_TRUE(env_.SyncDirectory(ParentOf(path)));
    return file;
  }
  std::optional<std::string> AfterCrash(const std::string& path, CrashPolicy policy,
                                        std::uint64_t seed = 1) {
    return Contents(*env_.AfterCrash(policy, seed), path);
  }

  FaultEnv env_;
};

TEST_F(FaultEnvTest, DurableChangesSurviveEveryCrash) {
  Durable("/f", "hello");
  EXPECT_EQ(env_.pending_changes(), 0u);
  for (const CrashPolicy policy : kPolicies) {
    EXPECT_EQ(AfterCrash("/f", policy), "hello");
  }
}

TEST_F(FaultEnvTest, UnsyncedWritesAreAppliedOrDropped) {
  auto file = Durable("/f", "hello");
  ASSERT_TRUE(file->WriteAt(0, BytesOf("J")));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kApplyAll), "Jello");
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), "hello");
  EXPECT_EQ(Contents(env_, "/f"), "Jello");  // the running system sees its own writes
}

TEST_F(FaultEnvTest, NamesNeedTheirDirectorySynced) {
  auto file = Open(env_, "/f");
  ASSERT_TRUE(file->WriteAt(0, BytesOf("x")));
  ASSERT_TRUE(file->Sync());
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), std::nullopt);
  ASSERT_TRUE(env_.SyncDirectory("/"));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), "x");
}

TEST_F(FaultEnvTest, RenameIsAllOrNothing) {
  Durable("/old", "1");
  Durable("/new", "2");
  ASSERT_TRUE(env_.Rename("/new", "/old"));
  EXPECT_EQ(AfterCrash("/old", CrashPolicy::kDropAll), "1");
  EXPECT_EQ(AfterCrash("/new", CrashPolicy::kDropAll), "2");
  EXPECT_EQ(AfterCrash("/old", CrashPolicy::kApplyAll), "2");
  EXPECT_EQ(AfterCrash("/new", CrashPolicy::kApplyAll), std::nullopt);
}

TEST_F(FaultEnvTest, RemovalMayComeBack) {
  Durable("/f", "x");
  ASSERT_TRUE(env_.RemoveFile("/f"));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), "x");
  ASSERT_TRUE(env_.SyncDirectory("/"));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), std::nullopt);
}

TEST_F(FaultEnvTest, SyncOfOneFileSaysNothingOfAnother) {
  auto a = Durable("/a", "1");
  auto b = Durable("/b", "1");
  ASSERT_TRUE(a->WriteAt(0, BytesOf("2")));
  ASSERT_TRUE(b->WriteAt(0, BytesOf("2")));
  ASSERT_TRUE(b->Sync());
  EXPECT_EQ(AfterCrash("/a", CrashPolicy::kDropAll), "1");
  EXPECT_EQ(AfterCrash("/b", CrashPolicy::kDropAll), "2");
}

TEST_F(FaultEnvTest, TornWritesKeepWholeSectors) {
  const std::string before(2048, 'a');
  auto file = Durable("/f", before);
  ASSERT_TRUE(file->WriteAt(0, BytesOf(std::string(2048, 'b'))));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kTearLast),
            std::string(1024, 'b') + std::string(1024, 'a'));
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto after = AfterCrash("/f", CrashPolicy::kRandom, seed);
    ASSERT_EQ(after, AfterCrash("/f", CrashPolicy::kRandom, seed));
    for (std::size_t sector = 0; sector < 4; ++sector) {
      const std::string part = after->substr(sector * 512, 512);
      ASSERT_TRUE(part == std::string(512, part[0])) << "seed " << seed;
    }
    outcomes.insert(*after);
  }
  EXPECT_EQ(outcomes.size(), 16u);
}

TEST_F(FaultEnvTest, WriteInsideOneSectorIsNeverTorn) {
  auto file = Durable("/f", std::string(512, 'a'));
  ASSERT_TRUE(file->WriteAt(100, BytesOf("bb")));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kTearLast), std::string(512, 'a'));
}

TEST_F(FaultEnvTest, FailedSyncLeavesItsWritesInDoubtForGood) {
  auto file = Durable("/f", "1");
  ASSERT_TRUE(file->WriteAt(0, BytesOf("2")));
  env_.Inject({.kind = FileOpKind::kSync});
  EXPECT_EQ(file->Sync().error().code, ErrorCode::kIo);
  EXPECT_FALSE(file->Sync());  // poisoned although the fault is over
  auto again = Open(env_, "/f");
  EXPECT_TRUE(again->Sync());
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), "1");
}

TEST_F(FaultEnvTest, FaultsStrikeTheirOperationOnly) {
  auto a = Durable("/a", "12345678");
  auto b = Durable("/b", "1");
  env_.Inject({.kind = FileOpKind::kWrite, .nth = 2, .path_contains = "/a", .applied_bytes = 3});
  EXPECT_TRUE(a->WriteAt(0, BytesOf("x")));
  EXPECT_TRUE(b->WriteAt(0, BytesOf("x")));
  EXPECT_EQ(a->WriteAt(0, BytesOf("yyyyyyyy")).error().code, ErrorCode::kIo);
  EXPECT_EQ(Contents(env_, "/a"), "yyy45678");
  EXPECT_TRUE(a->WriteAt(0, BytesOf("z")));
  env_.Inject({.kind = FileOpKind::kRead, .repeat = Fault::kForever});
  std::byte byte[1];
  EXPECT_FALSE(a->ReadAt(0, byte));
  EXPECT_FALSE(b->ReadAt(0, byte));
  env_.ClearFaults();
  EXPECT_TRUE(a->ReadAt(0, byte));
}

TEST_F(FaultEnvTest, PowerStopsAtTheChosenSync) {
  auto file = Durable("/f", "1");  // two syncs: the file, the directory
  EXPECT_EQ(env_.sync_count(), 2u);
  env_.StopAtSync(3);
  ASSERT_TRUE(file->WriteAt(0, BytesOf("2")));
  EXPECT_FALSE(env_.stopped());
  EXPECT_FALSE(file->Sync());
  EXPECT_TRUE(env_.stopped());
  std::byte byte[1];
  EXPECT_FALSE(file->ReadAt(0, byte));
  EXPECT_FALSE(file->WriteAt(0, BytesOf("3")));
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kApplyAll), "2");
  EXPECT_EQ(AfterCrash("/f", CrashPolicy::kDropAll), "1");
}

TEST_F(FaultEnvTest, HookSeesEveryPointAndMayTakeASnapshot) {
  std::vector<std::string> seen;
  env_.SetHook([&](const FileOp& op) {
    if (op.kind == FileOpKind::kSync) {
      seen.push_back(AfterCrash("/f", CrashPolicy::kApplyAll).value_or("none"));
    }
  });
  auto file = Open(env_, "/f");
  ASSERT_TRUE(file->WriteAt(0, BytesOf("1")));
  ASSERT_TRUE(file->Sync());
  ASSERT_TRUE(file->WriteAt(0, BytesOf("2")));
  ASSERT_TRUE(file->Sync());
  EXPECT_EQ(seen, (std::vector<std::string>{"1", "2"}));
}

TEST_F(FaultEnvTest, FilesOfALostDirectoryAreLost) {
  env_.CreateDirectories("/d");
  auto file = Open(env_, "/d/f");
  ASSERT_TRUE(file->Sync());
  ASSERT_TRUE(env_.SyncDirectory("/d"));
  const auto after = env_.AfterCrash(CrashPolicy::kDropAll, 1);
  EXPECT_TRUE(after->ListDirectory("/")->empty());
  EXPECT_FALSE(after->Stat("/d/f"));
}

TEST_F(FaultEnvTest, LocksDoNotOutliveACrash) {
  const auto lock = env_.LockFile("/lock");
  ASSERT_TRUE(lock);
  EXPECT_TRUE(env_.AfterCrash(CrashPolicy::kApplyAll, 1)->LockFile("/lock"));
}

}  // namespace
}  // namespace skippy
