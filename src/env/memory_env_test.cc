// Goal: the in-memory Env behaves like the real one where code depends on it, and its clock, space
// and strictness are what tests are promised.
#include "env/memory_env.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace skippy {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class MemoryEnvTest : public testing::Test {
 protected:
  MemoryEnvTest() { env_.CreateDirectories("/a/b"); }

  std::unique_ptr<File> Create(const std::string& path, bool direct = false) {
    OpenOptions options;
    options.create = options.writable = true;
    options.direct = direct;
    auto file = env_.OpenFile(path, options);
    EXPECT_TRUE(file) << file.error().text;
    return std::move(*file);
  }
  std::string ReadAll(File& file) {
    std::string out(file.FileBytes().value(), '?');
    EXPECT_EQ(file.ReadAt(0, std::as_writable_bytes(std::span(out))).value(), out.size());
    return out;
  }

  MemoryEnv env_;
};

TEST_F(MemoryEnvTest, KeepsFilesAndNames) {
  auto file = Create("/a/b/f");
  ASSERT_TRUE(file->WriteAt(2, BytesOf("xy")));
  EXPECT_EQ(ReadAll(*file), std::string("\0\0xy", 4));
  EXPECT_EQ(env_.ListDirectory("/a").value(), std::vector<std::string>{"b"});
  ASSERT_TRUE(env_.Rename("/a/b/f", "/a/g"));
  EXPECT_EQ(env_.Stat("/a/b/f").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(env_.Stat("/a/g")->file_bytes, 4u);
  EXPECT_EQ(env_.Stat("/a/g")->mode, 0600u);
  EXPECT_EQ(env_.RemoveDirectory("/a").error().code, ErrorCode::kBusy);
  ASSERT_TRUE(env_.RemoveFile("/a/g"));
  EXPECT_EQ(ReadAll(*file), std::string("\0\0xy", 4));  // open files outlive their name
}

TEST_F(MemoryEnvTest, RenamesDirectoriesWithWhatTheyHold) {
  Create("/a/b/f");
  Create("/a/bc");
  ASSERT_TRUE(env_.Rename("/a/b", "/d"));
  EXPECT_TRUE(env_.Stat("/d/f"));
  EXPECT_TRUE(env_.Stat("/a/bc"));
  EXPECT_FALSE(env_.Stat("/a/b/f"));
}

TEST_F(MemoryEnvTest, RefusesWhatTheRealOneRefuses) {
  EXPECT_EQ(env_.OpenFile("/none", {}).error().code, ErrorCode::kNotFound);
  OpenOptions options;
  options.create = options.exclusive = options.writable = true;
  EXPECT_EQ(env_.OpenFile("/none/f", options).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(env_.OpenFile("/f", options));
  EXPECT_EQ(env_.OpenFile("/f", options).error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE((*env_.OpenFile("/f", {}))->WriteAt(0, BytesOf("x")));
  EXPECT_EQ(env_.CreateDirectory("/a").error().code, ErrorCode::kAlreadyExists);
}

TEST_F(MemoryEnvTest, DirectIoMustBeAligned) {
  auto file = Create("/f", true);
  alignas(4096) std::byte block[8192] = {};
  EXPECT_TRUE(file->WriteAt(0, std::span(block).first(4096)));
  EXPECT_FALSE(file->WriteAt(0, std::span(block).first(100)));
  EXPECT_FALSE(file->WriteAt(1, std::span(block).first(4096)));
  EXPECT_FALSE(file->ReadAt(0, std::span(block).subspan(8, 4096)));
}

TEST_F(MemoryEnvTest, CountsSpace) {
  auto file = Create("/f");
  env_.SetFreeBytes(3 * 4096);
  ASSERT_TRUE(file->Allocate(0, 2 * 4096));
  EXPECT_EQ(file->AllocatedBytes().value(), 2u * 4096);
  EXPECT_EQ(env_.Space("/")->available_bytes, 4096u);
  EXPECT_EQ(file->Allocate(0, 4 * 4096).error().code, ErrorCode::kNoSpace);
  ASSERT_TRUE(file->WriteAt(4096, BytesOf("inside")));
  ASSERT_TRUE(file->WriteAt(3 * 4096, BytesOf("last")));
  EXPECT_EQ(file->WriteAt(5 * 4096, BytesOf("full")).error().code, ErrorCode::kNoSpace);
  ASSERT_TRUE(file->PunchHole(0, 4096));
  EXPECT_TRUE(file->WriteAt(5 * 4096, BytesOf("room")));
}

TEST_F(MemoryEnvTest, TruncationForgetsTheTail) {
  auto file = Create("/f");
  ASSERT_TRUE(file->WriteAt(0, BytesOf("0123456789")));
  ASSERT_TRUE(file->Truncate(4));
  ASSERT_TRUE(file->Truncate(6));
  EXPECT_EQ(ReadAll(*file), std::string("0123\0\0", 6));
}

TEST_F(MemoryEnvTest, CopyOnWriteCannotPreallocate) {
  env_.SetFilesystem(FilesystemKind::kCopyOnWrite);
  EXPECT_EQ(Create("/f")->Allocate(0, 4096).error().code, ErrorCode::kUnsupported);
}

TEST_F(MemoryEnvTest, LocksAreExclusive) {
  auto lock = env_.LockFile("/lock");
  ASSERT_TRUE(lock);
  EXPECT_EQ(env_.LockFile("/lock").error().code, ErrorCode::kBusy);
  lock->reset();
  EXPECT_TRUE(env_.LockFile("/lock"));
}

TEST_F(MemoryEnvTest, ClockMovesOnlyWhenTold) {
  const auto before = env_.MonotonicNow();
  EXPECT_EQ(env_.MonotonicNow(), before);
  env_.AdvanceClock(std::chrono::seconds(5));
  EXPECT_EQ(env_.MonotonicNow() - before, std::chrono::seconds(5));
}

TEST(MemoryImageTest, WritesAgreeWithAPlainString) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    std::mt19937 random(seed);
    MemoryImage image;
    image.Apply({.kind = FileOpKind::kCreateFile, .node = NodeId{2}, .path = "/f"});
    std::string model;
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t offset = random() % 20000;
      if (random() % 4 == 0) {
        image.Apply({.kind = FileOpKind::kTruncate, .node = NodeId{2}, .byte_count = offset});
        model.resize(offset);
      } else {
        const std::string text(random() % 9000 + 1, static_cast<char>('a' + random() % 26));
        image.Apply({.kind = FileOpKind::kWrite,
                     .node = NodeId{2},
                     .offset = offset,
                     .byte_count = text.size(),
                     .bytes = BytesOf(text)});
        model.resize(std::max<std::size_t>(model.size(), offset + text.size()));
        model.replace(offset, text.size(), text);
      }
      const MemoryImage copy = image;  // shares pages: later writes must not show in it
      std::string back(model.size(), '?');
      ASSERT_EQ(copy.Read(NodeId{2}, 0, std::as_writable_bytes(std::span(back))), model.size());
      ASSERT_EQ(back, model) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace skippy
