// Goal: a digest is always that of the bytes, and reading is saved only where nothing can have
// changed. Method: the in-memory Env with every read of a weights file counted.
#include "engine/weights_digest.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "env/memory_env.h"

namespace skippy {
namespace {

class CountingEnv : public MemoryEnv {
 public:
  int reads() const { return reads_; }
  void FailWrites() { fail_writes_ = true; }
  // From now on every file seems to have been modified at the same time.
  void FreezeModificationTimes() { frozen_ = true; }

  Result<FileInfo> Stat(const std::string& path) override {
    auto info = MemoryEnv::Stat(path);
    if (info && frozen_) info->modified_ns = 1;
    return info;
  }

  void OnNextRead(std::function<void()> action) { on_next_read_ = std::move(action); }

 protected:
  Verdict Before(const FileOp& op) override {
    if (op.kind == FileOpKind::kRead && op.path.find("/models") == 0) {
      ++reads_;
      if (auto action = std::exchange(on_next_read_, nullptr)) action();
    }
    if (fail_writes_ && op.kind == FileOpKind::kWrite) {
      return {MakeError(ErrorCode::kIo, "write fails"), 0};
    }
    return {};
  }

 private:
  int reads_ = 0;
  bool fail_writes_ = false;
  bool frozen_ = false;
  std::function<void()> on_next_read_;
};

class WeightsDigestTest : public testing::Test {
 protected:
  WeightsDigestTest() { env_.CreateDirectories("/models"); }

  void Write(const std::string& path, std::string_view text) {
    OpenOptions options;
    options.create = options.writable = true;
    auto file = env_.OpenFile(path, options).value();
    ASSERT_TRUE(file->Truncate(0).has_value());
    ASSERT_TRUE(file->WriteAt(0, std::as_bytes(std::span(text))).has_value());
    env_.AdvanceClock(std::chrono::seconds(10));
  }

  std::string Read(const std::string& path) {
    auto file = env_.OpenFile(path, {}).value();
    std::string text(file->FileBytes().value(), '\0');
    EXPECT_EQ(file->ReadAt(0, std::as_writable_bytes(std::span(text))).value(), text.size());
    return text;
  }

  static ContentDigest Of(std::string_view text) {
    return HashBytes<ContentDigest>(std::as_bytes(std::span(text)));
  }

  Result<std::vector<ContentDigest>> Digest(const std::vector<std::string>& paths) {
    return DigestFiles(&env_, paths, "/memo/weights", nullptr);
  }

  CountingEnv env_;
};

TEST_F(WeightsDigestTest, DigestsEveryFileInOrder) {
  Write("/models/a", "first");
  Write("/models/b", "second");
  EXPECT_EQ(Digest({"/models/a", "/models/b"}).value(),
            (std::vector<ContentDigest>{Of("first"), Of("second")}));
}

TEST_F(WeightsDigestTest, AnUnchangedFileIsNotReadAgain) {
  Write("/models/a", "first");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  const int reads = env_.reads();
  EXPECT_GT(reads, 0);
  EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("first"));
  EXPECT_EQ(env_.reads(), reads);
}

TEST_F(WeightsDigestTest, AChangedFileIsReadAgain) {
  Write("/models/a", "first");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  Write("/models/a", "FIRST");
  EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("FIRST"));
  EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("FIRST"));
}

TEST_F(WeightsDigestTest, AFileThatChangedJustNowIsNotRemembered) {
  Write("/models/a", "first");
  Write("/models/b", "second");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  OpenOptions options;
  options.writable = true;
  auto file = env_.OpenFile("/models/b", options).value();
  ASSERT_TRUE(file->WriteAt(0, std::as_bytes(std::span("S", 1))).has_value());
  ASSERT_TRUE(Digest({"/models/b"}).has_value());
  const int reads = env_.reads();
  ASSERT_TRUE(Digest({"/models/a", "/models/b"}).has_value());
  EXPECT_GT(env_.reads(), reads);
}

TEST_F(WeightsDigestTest, ADamagedMemoIsNotBelieved) {
  Write("/models/a", "first");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  const std::string memo = Read("/memo/weights/weight-digests");
  for (std::size_t i = 0; i < memo.size(); ++i) {
    std::string damaged = memo;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    Write("/memo/weights/weight-digests", damaged);
    EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("first")) << i;
  }
  for (const std::string& text : {std::string(), std::string("x"), memo.substr(0, 40)}) {
    Write("/memo/weights/weight-digests", text);
    EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("first"));
  }
}

TEST_F(WeightsDigestTest, TheMemoIsPrivateAndLeavesNothingBehind) {
  Write("/models/a", "first");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  EXPECT_EQ(env_.Stat("/memo/weights/weight-digests").value().mode, 0600U);
  EXPECT_EQ(env_.Stat("/memo/weights").value().mode, 0700U);
  EXPECT_EQ(env_.ListDirectory("/memo/weights").value().size(), 1U);
}

TEST_F(WeightsDigestTest, AMemoThatCannotBeWrittenCostsNothingElse) {
  Write("/models/a", "first");
  env_.FailWrites();
  EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("first"));
}

TEST_F(WeightsDigestTest, WithoutADirectoryNothingIsWritten) {
  Write("/models/a", "first");
  EXPECT_TRUE(DigestFiles(&env_, {"/models/a"}, "", nullptr).has_value());
  EXPECT_EQ(env_.ListDirectory("/").value().size(), 1U);
}

TEST_F(WeightsDigestTest, AFileThatChangesWhileItIsReadIsBusy) {
  Write("/models/a", "first");
  env_.OnNextRead([this] { Write("/models/a", "other"); });
  EXPECT_EQ(Digest({"/models/a"}).error().code, ErrorCode::kBusy);
}

TEST_F(WeightsDigestTest, NamesAMissingFile) {
  const auto digests = Digest({"/models/missing"});
  ASSERT_FALSE(digests.has_value());
  EXPECT_EQ(digests.error().code, ErrorCode::kNotFound);
  EXPECT_NE(digests.error().text.find("/models/missing"), std::string::npos);
}

TEST_F(WeightsDigestTest, CancelStopsReading) {
  Write("/models/a", "first");
  const std::atomic<bool> cancel = true;
  EXPECT_EQ(DigestFiles(&env_, {"/models/a"}, "", &cancel).error().code, ErrorCode::kCancelled);
}

// Equal size, modification time put back: only the change time tells.
TEST_F(WeightsDigestTest, ARestoredModificationTimeHidesNothing) {
  env_.FreezeModificationTimes();
  Write("/models/a", "first");
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  const int reads = env_.reads();
  ASSERT_TRUE(Digest({"/models/a"}).has_value());
  ASSERT_EQ(env_.reads(), reads);
  Write("/models/a", "FIRST");
  EXPECT_EQ(Digest({"/models/a"}).value().front(), Of("FIRST"));
}

}  // namespace
}  // namespace skippy
