// Goal: PackStore keeps its contract over real files: bounds, start-up, reuse, deletion, damage.
// Method: a private directory; every object is filled from its number and compared on reading.
#include "pack/pack_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "pack/pack_format.h"

namespace skippy {
namespace {

constexpr std::uint64_t kPackBytes = 16 * kBlockBytes;
constexpr std::uint64_t kPayloadBytes = kPackBytes - kBlockBytes;

std::vector<std::byte> Object(unsigned number, std::size_t byte_count) {
  std::mt19937 random(number);
  std::vector<std::byte> bytes(byte_count);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

class PackStoreTest : public testing::Test {
 protected:
  PackStoreTest() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    options_.directory = root_;
    options_.pack_bytes = kPackBytes;
    options_.capacity_bytes = 4 * kPackBytes;
  }
  ~PackStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  void Open() {
    store_.reset();
    auto store = PackStore::Open(Env::Posix(), options_);
    ASSERT_TRUE(store) << store.error().text;
    store_ = std::move(*store);
  }
  void OpenFresh() {
    Open();
    store_->FinishRecovery();
  }
  ExtentList Store(unsigned number, std::size_t byte_count) {
    auto extents = store_->Allocate(byte_count);
    EXPECT_TRUE(extents) << extents.error().text;
    const Status written = store_->Write(*extents, Object(number, byte_count));
    EXPECT_TRUE(written) << written.error().text;
    return *extents;
  }
  void ExpectObject(const ExtentList& extents, unsigned number, std::size_t byte_count) {
    std::vector<std::byte> bytes(byte_count);
    const Status read = store_->Read(extents, bytes);
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_TRUE(bytes == Object(number, byte_count)) << "object " << number;
  }
  void WriteFile(const std::string& name, std::string_view text) {
    std::ofstream(root_ + "/" + name) << text;
  }
  void FlipByte(const std::string& name, std::uint64_t offset) {
    std::fstream file(root_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
  }

  const std::string root_ = std::filesystem::temp_directory_path().string() +
                            "/skippy_pack_store." + std::to_string(::getpid());
  PackStoreOptions options_;
  std::unique_ptr<PackStore> store_;
};

TEST_F(PackStoreTest, FreshDirectoryHoldsNothing) {
  OpenFresh();
  EXPECT_EQ(store_->Usage().physical_bytes, 0u);
  EXPECT_EQ(store_->Usage().live_bytes, 0u);
  EXPECT_EQ(store_->AvailableBytes(), 4 * kPayloadBytes);
}

TEST_F(PackStoreTest, ReadsBackObjectsOfAnySize) {
  for (const bool direct : {true, false}) {
    options_.direct_io = direct;
    OpenFresh();
    for (const std::size_t byte_count : {1ul, 4095ul, 4096ul, 4097ul, 20000ul}) {
      const ExtentList extents = Store(1, byte_count);
      ExpectObject(extents, 1, byte_count);
      store_->Free(extents);
    }
    EXPECT_TRUE(store_->Sync());
    EXPECT_TRUE(store_->Allocate(0)->empty());
  }
}

TEST_F(PackStoreTest, WritesAlignedBuffersAndPadsTheTailWithZeros) {
  OpenFresh();
  alignas(4096) std::byte bytes[3 * kBlockBytes];
  std::memset(bytes, 0x55, sizeof(bytes));
  auto extents = store_->Allocate(3 * kBlockBytes);
  ASSERT_TRUE(extents);
  ASSERT_TRUE(store_->Write(*extents, bytes));
  ASSERT_TRUE(store_->Write(*extents, std::span(bytes).first(kBlockBytes + 10)));
  alignas(4096) std::byte back[3 * kBlockBytes];
  ASSERT_TRUE(store_->Read(*extents, back));
  EXPECT_EQ(back[kBlockBytes + 9], std::byte{0x55});
  EXPECT_EQ(back[kBlockBytes + 10], std::byte{0});
  EXPECT_EQ(back[2 * kBlockBytes - 1], std::byte{0});
  EXPECT_EQ(back[2 * kBlockBytes], std::byte{0x55});
}

TEST_F(PackStoreTest, ObjectsMaySpanPacksAndFragments) {
  OpenFresh();
  const ExtentList a = Store(1, 6 * kBlockBytes);
  const ExtentList b = Store(2, 6 * kBlockBytes);
  const ExtentList c = Store(3, 3 * kBlockBytes);
  store_->Free(a);
  store_->Free(c);
  const std::size_t large_bytes = 2 * kPayloadBytes + 100;
  const ExtentList large = Store(4, large_bytes);
  EXPECT_GT(large.size(), 2u);
  ExpectObject(large, 4, large_bytes);
  ExpectObject(b, 2, 6 * kBlockBytes);
}

TEST_F(PackStoreTest, ReopenKeepsWhatIsMarkedAndFreesTheRest) {
  OpenFresh();
  const ExtentList kept = Store(1, 30000);
  Store(2, 30000);
  ASSERT_TRUE(store_->Sync());
  Open();
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(store_->MarkUsed(kept));
  EXPECT_EQ(store_->FinishRecovery(), 2 * kPayloadBytes - 8 * kBlockBytes);
  ExpectObject(kept, 1, 30000);
  EXPECT_EQ(store_->Usage().live_bytes, 8 * kBlockBytes);
}

TEST_F(PackStoreTest, RefusesToMarkWhatCannotBe) {
  OpenFresh();
  const ExtentList extents = Store(1, 8 * kBlockBytes);
  const PackId pack = extents[0].pack;
  Open();
  ASSERT_TRUE(store_->MarkUsed({Extent{pack, 1, 4}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 4, 2}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 0, 1}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 5, 0}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 15, 2}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 5, 0xFFFFFFFF}}));
  EXPECT_FALSE(store_->MarkUsed({Extent{PackId{77}, 1, 1}}));
  // Overlaps itself: nothing of the list may stay marked.
  EXPECT_FALSE(store_->MarkUsed({Extent{pack, 6, 2}, Extent{pack, 7, 2}}));
  EXPECT_TRUE(store_->MarkUsed({Extent{pack, 5, 11}}));
  EXPECT_EQ(store_->FinishRecovery(), 0u);
}

// Proves D37.
TEST_F(PackStoreTest, OfTwoThreadsThatWantTheLastPackExactlyOneGetsIt) {
  options_.capacity_bytes = kPackBytes;
  for (int round = 0; round < 50; ++round) {
    OpenFresh();
    std::atomic<int> got{0};
    const auto want = [&] { got += store_->Allocate(kPayloadBytes * 2 / 3).has_value(); };
    std::thread other(want);
    want();
    other.join();
    EXPECT_EQ(got, 1);
    EXPECT_LE(store_->Usage().physical_bytes, kPackBytes);
    EXPECT_EQ(store_->Usage().pack_count, 1u);
  }
}

TEST_F(PackStoreTest, NeverPassesTheCapacity) {
  OpenFresh();
  ExtentList all;
  for (unsigned i = 0; i < 4; ++i) {
    const ExtentList extents = Store(i, kPayloadBytes);
    all.insert(all.end(), extents.begin(), extents.end());
  }
  EXPECT_EQ(store_->Usage().physical_bytes, options_.capacity_bytes);
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kResourceExhausted);
  store_->Free({all[0]});
  EXPECT_TRUE(store_->Allocate(kPayloadBytes));
  EXPECT_EQ(store_->AvailableBytes(), 0u);
}

TEST_F(PackStoreTest, MakesNoPackForWhatCanNeverFit) {
  OpenFresh();
  EXPECT_EQ(store_->Allocate(4 * kPayloadBytes + 1).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(store_->Usage().pack_count, 0u);
}

// Proves D40.
TEST_F(PackStoreTest, KeepsTheFreeSpaceReserve) {
  options_.minimum_free_bytes = std::uint64_t{1} << 60;
  OpenFresh();
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kNoSpace);
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  EXPECT_EQ(store_->Usage().physical_bytes, 0u);
  store_->SetLimits(options_.capacity_bytes, 0);
  EXPECT_TRUE(store_->Allocate(1));
}

TEST_F(PackStoreTest, LeavesForeignFilesAloneAndCountsThem) {
  WriteFile("notes.txt", std::string(3 * kPackBytes, 'x'));
  WriteFile("pack-00000005.skp", "not a pack at all");
  OpenFresh();
  EXPECT_EQ(store_->foreign_files(), (std::vector<std::string>{"notes.txt", "pack-00000005.skp"}));
  EXPECT_EQ(store_->Allocate(1).error().code, ErrorCode::kResourceExhausted);
  store_->SetLimits(5 * kPackBytes, 0);
  const auto extents = store_->Allocate(1);
  ASSERT_TRUE(extents);
  EXPECT_EQ((*extents)[0].pack, PackId{6});
  EXPECT_EQ(std::filesystem::file_size(root_ + "/notes.txt"), 3 * kPackBytes);
  EXPECT_EQ(std::filesystem::file_size(root_ + "/pack-00000005.skp"), 17u);
}

TEST_F(PackStoreTest, ReportsADamagedHeaderAndAWrongName) {
  OpenFresh();
  const ExtentList first = Store(1, kPayloadBytes);
  const ExtentList second = Store(2, kPayloadBytes);
  ASSERT_TRUE(store_->Sync());
  store_.reset();
  FlipByte(PackFileName(first[0].pack), 100);
  std::filesystem::copy(root_ + "/" + PackFileName(second[0].pack),
                        root_ + "/" + PackFileName(PackId{9}));
  Open();
  EXPECT_EQ(store_->foreign_files().size(), 2u);
  EXPECT_FALSE(store_->MarkUsed(first));
  EXPECT_TRUE(store_->MarkUsed(second));
  ExpectObject(second, 2, kPayloadBytes);
}

TEST_F(PackStoreTest, ReportsBytesBehindTheEndOfATruncatedPackAsCorrupt) {
  OpenFresh();
  const ExtentList a = Store(1, 5 * kBlockBytes);
  const ExtentList b = Store(2, 5 * kBlockBytes);
  ASSERT_TRUE(store_->Sync());
  store_.reset();
  std::filesystem::resize_file(root_ + "/" + PackFileName(a[0].pack), 6 * kBlockBytes + 7);
  Open();
  ASSERT_TRUE(store_->MarkUsed(a));
  ASSERT_TRUE(store_->MarkUsed(b));
  ExpectObject(a, 1, 5 * kBlockBytes);
  std::vector<std::byte> bytes(5 * kBlockBytes);
  EXPECT_EQ(store_->Read(b, bytes).error().code, ErrorCode::kCorrupt);
}

TEST_F(PackStoreTest, RemovesPacksThatWereNeverFinished) {
  WriteFile("pack-00000003.new", "half");
  OpenFresh();
  EXPECT_TRUE(std::filesystem::is_empty(root_));
  EXPECT_TRUE(store_->foreign_files().empty());
}

// Proves D46.
TEST_F(PackStoreTest, DeletesEmptyPacksNewestFirstDownToTheTarget) {
  OpenFresh();
  const ExtentList a = Store(1, kPayloadBytes);
  const ExtentList b = Store(2, kPayloadBytes);
  const ExtentList c = Store(3, kPayloadBytes);
  store_->Free(a);
  store_->Free(c);
  EXPECT_EQ(store_->DeleteEmptyPacks(2 * kPackBytes).value(), kPackBytes);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/" + PackFileName(c[0].pack)));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + PackFileName(a[0].pack)));
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), kPackBytes);
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), 0u);
  ExpectObject(b, 2, kPayloadBytes);
  EXPECT_EQ(store_->Usage().physical_bytes, kPackBytes);
  EXPECT_TRUE(store_->Sync());
}

TEST_F(PackStoreTest, NeverReusesQuarantinedBlocks) {
  options_.capacity_bytes = kPackBytes;
  OpenFresh();
  const ExtentList bad = Store(1, 4 * kBlockBytes);
  store_->Quarantine(bad);
  store_->Quarantine(bad);
  EXPECT_EQ(store_->Usage().quarantined_bytes, 4 * kBlockBytes);
  EXPECT_EQ(store_->Usage().live_bytes, 4 * kBlockBytes);
  EXPECT_EQ(store_->AvailableBytes(), 11 * kBlockBytes);
  const auto rest = store_->Allocate(11 * kBlockBytes);
  ASSERT_TRUE(rest);
  EXPECT_FALSE(store_->Allocate(1));
  store_->Free(*rest);
  EXPECT_EQ(store_->DeleteEmptyPacks(0).value(), 0u);
}

TEST_F(PackStoreTest, FreedBlocksStayInQuarantineUpToItsBound) {
  options_.capacity_bytes = 4 * kPackBytes;  // 64 blocks: four may stay
  OpenFresh();
  std::vector<ExtentList> bad;
  for (unsigned i = 0; i < 5; ++i) {
    bad.push_back(Store(i, 2 * kBlockBytes));
    store_->Quarantine(bad.back());
  }
  EXPECT_EQ(store_->Usage().quarantined_bytes, 10 * kBlockBytes) << "rows may still name them";
  for (unsigned i = 0; i < 4; ++i) store_->Free(bad[i]);
  EXPECT_EQ(store_->Usage().quarantined_bytes, 6 * kBlockBytes);
  EXPECT_EQ(store_->Allocate(2 * kBlockBytes).value(), bad[0]) << "the oldest come back first";
  store_->Free(bad[4]);
  EXPECT_EQ(store_->Usage().quarantined_bytes, 4 * kBlockBytes);
}

TEST_F(PackStoreTest, RefusesExtentsThatDoNotFitTheObject) {
  OpenFresh();
  const ExtentList extents = Store(1, kBlockBytes);
  std::vector<std::byte> bytes(kBlockBytes + 1);
  EXPECT_EQ(store_->Read(extents, bytes).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(store_->Read({Extent{PackId{99}, 1, 9}}, bytes).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->Write({Extent{extents[0].pack, 0, 9}}, bytes).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(PackStoreTest, RefusesOptionsThatMakeNoSense) {
  for (const std::uint64_t pack_bytes : {0ul, 4096ul, 65537ul}) {
    options_.pack_bytes = pack_bytes;
    EXPECT_EQ(PackStore::Open(Env::Posix(), options_).error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_F(PackStoreTest, ThreadsWriteReadAndFreeSideBySide) {
  options_.capacity_bytes = 8 * kPackBytes;
  OpenFresh();
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (unsigned round = 0; round < 15; ++round) {
        const unsigned number = thread * 1000 + round;
        const std::size_t byte_count = 1 + number * 7919 % (kPayloadBytes + kPayloadBytes / 2);
        const ExtentList extents = Store(number, byte_count);
        EXPECT_TRUE(store_->Sync());
        ExpectObject(extents, number, byte_count);
        store_->Free(extents);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(store_->Usage().live_bytes, 0u);
  EXPECT_LE(store_->Usage().physical_bytes, options_.capacity_bytes);
}

// Lets the process open `more` descriptors beside those it has.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlim_t highest = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      highest = std::max<rlim_t>(highest, std::stoul(entry.path().filename().string()));
    }
    const rlimit limit{.rlim_cur = highest + 1 + more, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(PackStoreTest, HasMorePacksThanTheProcessMayOpen) {
  constexpr unsigned kPacks = 40;
  options_.capacity_bytes = kPacks * kPackBytes;
  options_.open_packs_max = 4;
  const DescriptorLimit limit(12);
  OpenFresh();
  std::vector<ExtentList> objects;
  for (unsigned i = 0; i < kPacks; ++i) {
    objects.push_back(Store(i, kPayloadBytes));
    ASSERT_TRUE(store_->Sync());
  }
  Open();
  for (const ExtentList& extents : objects) EXPECT_TRUE(store_->MarkUsed(extents));
  store_->FinishRecovery();
  EXPECT_TRUE(store_->foreign_files().empty());
  EXPECT_EQ(store_->Usage().pack_count, kPacks);
  for (unsigned i = 0; i < kPacks; ++i) ExpectObject(objects[i], i, kPayloadBytes);
}

}  // namespace
}  // namespace skippy
