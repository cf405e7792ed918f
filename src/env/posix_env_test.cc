// Goal: the real Env keeps the promises of skippy/env.h that others rely on: permissions whatever
// the umask, no links followed, exclusive locks, kinds of errors. Method: a private directory.
#include "env/posix_env.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/unique_fd.h"

namespace skippy {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class PosixEnvTest : public testing::Test {
 protected:
  PosixEnvTest() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~PosixEnvTest() override { std::filesystem::remove_all(root_); }

  std::string PathOf(const std::string& name) const { return root_ + "/" + name; }

  std::unique_ptr<File> Create(const std::string& name) {
    OpenOptions options;
    options.create = true;
    options.writable = true;
    auto file = env_->OpenFile(PathOf(name), options);
    EXPECT_TRUE(file) << file.error().text;
    return std::move(*file);
  }

  std::string ReadAll(File& file, std::uint64_t offset, std::size_t byte_count) {
    std::string out(byte_count, '?');
    auto count = file.ReadAt(offset, std::as_writable_bytes(std::span(out)));
    EXPECT_TRUE(count);
    out.resize(count.value_or(0));
    return out;
  }

  Env* const env_ = Env::Posix();
  const std::string root_ = std::filesystem::temp_directory_path().string() + "/skippy_posix_env." +
                            std::to_string(::getpid());
};

TEST_F(PosixEnvTest, ReadsWhatWasWrittenAndStopsAtTheEnd) {
  auto file = Create("a");
  ASSERT_TRUE(file->WriteAt(3, BytesOf("hello")));
  EXPECT_EQ(ReadAll(*file, 3, 5), "hello");
  EXPECT_EQ(ReadAll(*file, 5, 100), "llo");
  EXPECT_EQ(ReadAll(*file, 50, 10), "");
  EXPECT_EQ(file->FileBytes().value(), 8u);
  EXPECT_TRUE(file->Sync());
}

// Proves D11.
TEST_F(PosixEnvTest, CreatesPrivateFilesAndDirectoriesWhateverTheUmask) {
  for (const mode_t mask : {0, 0777}) {
    const mode_t before = ::umask(mask);
    Create("file");
    ASSERT_TRUE(env_->CreateDirectory(PathOf("dir")));
    ASSERT_TRUE(env_->LockFile(PathOf("lock")));
    ::umask(before);
    EXPECT_EQ(env_->Stat(PathOf("file"))->mode, 0600u);
    EXPECT_EQ(env_->Stat(PathOf("lock"))->mode, 0600u);
    EXPECT_EQ(env_->Stat(PathOf("dir"))->mode, 0700u);
    ASSERT_TRUE(env_->RemoveFile(PathOf("file")));
    ASSERT_TRUE(env_->RemoveFile(PathOf("lock")));
    ASSERT_TRUE(env_->RemoveDirectory(PathOf("dir")));
  }
}

// Proves D3.
// A database shell takes record locks only; they must meet ours.
TEST_F(PosixEnvTest, LockAlsoStopsProgramsThatTakeRecordLocks) {
  auto ours = env_->LockFile(PathOf("lock"));
  ASSERT_TRUE(ours) << ours.error().text;
  const UniqueFd other(::open(PathOf("lock").c_str(), O_RDWR | O_CLOEXEC));
  struct flock wanted {};
  wanted.l_type = F_RDLCK;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = 0x40000000;  // where SQLite locks
  wanted.l_len = 1;
  EXPECT_EQ(::fcntl(other.get(), F_SETLK, &wanted), -1);
  EXPECT_TRUE(errno == EAGAIN || errno == EACCES);
  ours->reset();
  EXPECT_EQ(::fcntl(other.get(), F_SETLK, &wanted), 0);
  EXPECT_EQ(env_->LockFile(PathOf("lock")).error().code, ErrorCode::kBusy);
}

TEST_F(PosixEnvTest, SecondLockIsBusyAlsoInTheSameProcess) {
  auto first = env_->LockFile(PathOf("lock"));
  ASSERT_TRUE(first) << first.error().text;
  auto second = env_->LockFile(PathOf("lock"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  first->reset();
  EXPECT_TRUE(env_->LockFile(PathOf("lock")));
}

TEST_F(PosixEnvTest, ExclusiveCreationRefusesAnExistingFile) {
  Create("a");
  OpenOptions options;
  options.create = options.exclusive = options.writable = true;
  EXPECT_EQ(env_->OpenFile(PathOf("a"), options).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(env_->OpenFile(PathOf("none"), {}).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(env_->CreateDirectory(PathOf("d")));
  EXPECT_EQ(env_->CreateDirectory(PathOf("d")).error().code, ErrorCode::kAlreadyExists);
}

// Proves D8.
TEST_F(PosixEnvTest, DoesNotFollowLinks) {
  Create("target");
  ASSERT_EQ(::symlink(PathOf("target").c_str(), PathOf("link").c_str()), 0);
  OpenOptions options;
  options.create = options.writable = true;
  EXPECT_EQ(env_->OpenFile(PathOf("link"), options).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(env_->LockFile(PathOf("link")));
  EXPECT_FALSE(env_->SetMode(PathOf("link"), 0600));
  EXPECT_EQ(env_->Stat(PathOf("link"))->kind, FileKind::kSymlink);
}

TEST_F(PosixEnvTest, RefusesAFifoInsteadOfHanging) {
  ASSERT_EQ(::mkfifo(PathOf("fifo").c_str(), 0600), 0);
  EXPECT_EQ(env_->OpenFile(PathOf("fifo"), {}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PosixEnvTest, ListsRenamesAndRemoves) {
  Create("a");
  ASSERT_TRUE(env_->Rename(PathOf("a"), PathOf("b")));
  ASSERT_TRUE(env_->SyncDirectory(root_));
  EXPECT_EQ(env_->ListDirectory(root_).value(), std::vector<std::string>{"b"});
  ASSERT_TRUE(env_->RemoveFile(PathOf("b")));
  EXPECT_TRUE(env_->ListDirectory(root_)->empty());
  EXPECT_EQ(env_->RemoveFile(PathOf("b")).error().code, ErrorCode::kNotFound);
}

TEST_F(PosixEnvTest, AllocatesTruncatesAndPunches) {
  auto file = Create("a");
  const Status allocated = file->Allocate(0, 65536);
  if (!allocated) {  // a file system that cannot promise space must say so and nothing else
    EXPECT_EQ(allocated.error().code, ErrorCode::kUnsupported);
    return;
  }
  EXPECT_EQ(file->FileBytes().value(), 65536u);
  EXPECT_GE(file->AllocatedBytes().value(), 65536u);
  ASSERT_TRUE(file->Truncate(4096));
  EXPECT_EQ(file->FileBytes().value(), 4096u);
}

TEST_F(PosixEnvTest, DirectFilesReadBackAlsoTheirOddTail) {
  OpenOptions options;
  options.create = options.writable = options.direct = true;
  auto file = env_->OpenFile(PathOf("a"), options);
  ASSERT_TRUE(file) << file.error().text;
  alignas(4096) std::byte block[8192] = {};
  std::memset(block, 7, sizeof(block));
  ASSERT_TRUE((*file)->WriteAt(0, block));
  ASSERT_TRUE((*file)->Truncate(5000));
  alignas(4096) std::byte back[8192] = {};
  EXPECT_EQ((*file)->ReadAt(0, back).value(), 5000u);
  EXPECT_EQ(back[4999], std::byte{7});
}

TEST_F(PosixEnvTest, KnowsSpaceKindAndCanonicalPath) {
  const auto space = env_->Space(root_);
  ASSERT_TRUE(space);
  EXPECT_GT(space->total_bytes, space->available_bytes);
  EXPECT_NE(env_->Filesystem(root_).value(), FilesystemKind::kNetwork);
  EXPECT_EQ(env_->Canonicalize(root_ + "/./../" + root_.substr(root_.rfind('/') + 1)).value(),
            env_->Canonicalize(root_).value());
  EXPECT_GT(env_->WallNow().count(), 0);
  const auto before = env_->MonotonicNow();
  EXPECT_LE(before, env_->MonotonicNow());
}

}  // namespace
}  // namespace skippy
