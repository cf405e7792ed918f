// Goal: free blocks can be given back to the file system where packs are in use in part, and come
// back when they are needed, without passing the capacity. Method: packs over an in-memory file
// system, with live extents spread over them.
#include <gtest/gtest.h>

#include <vector>

#include "env/memory_env.h"
#include "pack/pack_store.h"

namespace skippy {
namespace {

constexpr std::uint64_t kPackBytes = 64 * 1024;
constexpr std::uint64_t kObjectBytes = 3 * kBlockBytes;

class PackTrimTest : public testing::Test {
 protected:
  PackTrimTest() { env_.CreateDirectories("/packs"); }

  void Open(std::uint64_t capacity_bytes) {
    store_.reset();
    auto opened = PackStore::Open(
        &env_, {.directory = "/packs", .pack_bytes = kPackBytes, .capacity_bytes = capacity_bytes});
    ASSERT_TRUE(opened) << opened.error().text;
    store_ = std::move(*opened);
  }
  // Four packs, of which every fifth object stays.
  void FillAndThin() {
    Open(4 * kPackBytes);
    store_->FinishRecovery();
    std::vector<ExtentList> all;
    for (int i = 0; i < 20; ++i) all.push_back(store_->Allocate(kObjectBytes).value());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % 5 == 0) {
        ASSERT_TRUE(store_->Write(all[i], Bytes(i)));
        kept_.push_back(all[i]);
      } else {
        store_->Free(all[i]);
      }
    }
  }
  std::vector<std::byte> Bytes(std::size_t i) const {
    return std::vector<std::byte>(kObjectBytes, std::byte(i + 1));
  }
  void ExpectKept() {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      std::vector<std::byte> read(kObjectBytes);
      ASSERT_TRUE(store_->Read(kept_[i], read));
      EXPECT_EQ(read, Bytes(i * 5));
    }
  }
  std::uint64_t PhysicalBytes() {
    std::uint64_t total = 0;
    const std::vector<std::string> names = env_.ListDirectory("/packs").value();
    for (const std::string& name : names) total += env_.Stat("/packs/" + name)->allocated_bytes;
    return total;
  }

  std::uint64_t FileBytes() {
    std::uint64_t total = 0;
    const std::vector<std::string> names = env_.ListDirectory("/packs").value();
    for (const std::string& name : names) total += env_.Stat("/packs/" + name)->file_bytes;
    return total;
  }

  MemoryEnv env_;
  std::unique_ptr<PackStore> store_;
  std::vector<ExtentList> kept_;
};

TEST_F(PackTrimTest, ReachesTheTargetThoughEveryPackIsInUse) {
  FillAndThin();
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), 0U);
  const std::uint64_t live_bytes = 4 * kObjectBytes + 4 * kBlockBytes;  // and the headers
  EXPECT_EQ(store_->TrimFreeBlocks(100 * 1024).value(), 4 * kPackBytes - 100 * 1024);
  EXPECT_EQ(store_->Usage().physical_bytes, 100U * 1024);
  EXPECT_EQ(PhysicalBytes(), 100U * 1024);
  store_->TrimFreeBlocks(0).value();
  EXPECT_EQ(store_->Usage().physical_bytes, live_bytes);
  EXPECT_EQ(PhysicalBytes(), live_bytes);
  EXPECT_EQ(store_->Usage().live_bytes, 4 * kObjectBytes);
  ExpectKept();
}

TEST_F(PackTrimTest, AFileEndsWhereItsLastLiveBlockEnds) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  EXPECT_EQ(FileBytes(), 4 * (kObjectBytes + kBlockBytes));
  ExpectKept();
  // Wanted again, it grows back before its blocks are handed out.
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(store_->Allocate(kObjectBytes));
  EXPECT_EQ(FileBytes(), 4 * kPackBytes);
  EXPECT_EQ(PhysicalBytes(), 4 * kPackBytes);
  ExpectKept();
}

TEST_F(PackTrimTest, OpensFilesThatEndEarly) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  Open(4 * kPackBytes);
  for (const ExtentList& extents : kept_) ASSERT_TRUE(store_->MarkUsed(extents));
  EXPECT_EQ(store_->FinishRecovery(), 16 * kObjectBytes);
  EXPECT_EQ(FileBytes(), 4 * (kObjectBytes + kBlockBytes));
  for (int i = 0; i < 16; ++i) {
    const ExtentList extents = store_->Allocate(kObjectBytes).value();
    ASSERT_TRUE(store_->Write(extents, Bytes(1)));
  }
  ExpectKept();
}

TEST_F(PackTrimTest, TakesTheSpaceBackWithinTheCapacity) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  const std::uint64_t capacity_bytes = store_->Usage().physical_bytes + 2 * kObjectBytes;
  store_->SetLimits(capacity_bytes, 0);
  EXPECT_EQ(store_->AvailableBytes(), 2 * kObjectBytes);
  for (int i = 0; i < 2; ++i) {
    const auto extents = store_->Allocate(kObjectBytes);
    ASSERT_TRUE(extents);
    EXPECT_TRUE(store_->Write(*extents, Bytes(50)));
  }
  EXPECT_EQ(PhysicalBytes(), capacity_bytes);
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kResourceExhausted);
  ExpectKept();
}

TEST_F(PackTrimTest, RefusesWhenTheFileSystemHasNoSpaceForAHole) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  env_.SetFreeBytes(kBlockBytes);
  EXPECT_EQ(store_->Allocate(kObjectBytes).error().code, ErrorCode::kNoSpace);
  env_.SetFreeBytes(4 * kPackBytes);
  EXPECT_TRUE(store_->Allocate(kObjectBytes));
}

TEST_F(PackTrimTest, CountsHolesAfterAStart) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  const std::uint64_t physical_bytes = PhysicalBytes();
  Open(4 * kPackBytes);
  for (const ExtentList& extents : kept_) ASSERT_TRUE(store_->MarkUsed(extents));
  store_->FinishRecovery();
  EXPECT_EQ(store_->Usage().physical_bytes, physical_bytes);
  EXPECT_EQ(PhysicalBytes(), physical_bytes);
  EXPECT_EQ(store_->AvailableBytes(), 56 * kBlockBytes - kObjectBytes * 4 + 4 * kBlockBytes);
  ExpectKept();
}

TEST_F(PackTrimTest, DeletesAPackThatIsAllHoles) {
  FillAndThin();
  store_->TrimFreeBlocks(0).value();
  for (const ExtentList& extents : kept_) store_->Free(extents);
  const std::uint64_t physical_bytes = store_->Usage().physical_bytes;
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), physical_bytes);
  EXPECT_EQ(PhysicalBytes(), 0U);
  EXPECT_EQ(store_->Usage().physical_bytes, 0U);
}

}  // namespace
}  // namespace skippy
