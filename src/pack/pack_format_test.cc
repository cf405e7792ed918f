// Goal: a pack header is believed only when every byte of block 0 is as written.
#include "pack/pack_format.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/coding.h"
#include "base/hash.h"

namespace skippy {
namespace {

using BlockArray = std::array<std::byte, kBlockBytes>;

constexpr PackHeader kHeader{PackId{0x1234ABCD}, 256 << 20};

BlockArray Encoded() {
  BlockArray block;
  EncodePackHeader(kHeader, block);
  return block;
}

// The header as a program of another version would write it, by the rules of this one.
BlockArray WithVersion(std::uint32_t version) {
  BlockArray block = Encoded();
  StoreLittleEndian(&block[8], version);
  Hasher hasher;
  hasher.Update(block.data(), 32);
  hasher.Update(block.data() + 64, block.size() - 64);
  struct Digest {
    std::array<unsigned char, 32> bytes;
  };
  const auto digest = hasher.Finish<Digest>();
  std::memcpy(&block[32], digest.bytes.data(), digest.bytes.size());
  return block;
}

TEST(PackFormatTest, ReadsBackWhatItWrote) {
  EXPECT_EQ(DecodePackHeader(Encoded()).value(), kHeader);
}

TEST(PackFormatTest, NoticesEveryFlippedByte) {
  for (std::size_t i = 0; i < kBlockBytes; ++i) {
    BlockArray block = Encoded();
    block[i] ^= std::byte{0x10};
    const auto header = DecodePackHeader(block);
    ASSERT_FALSE(header) << "byte " << i;
    ASSERT_EQ(header.error().code, ErrorCode::kCorrupt) << "byte " << i;
  }
}

// Proves D28.
TEST(PackFormatTest, TellsAnotherVersionFromDamage) {
  EXPECT_TRUE(DecodePackHeader(WithVersion(1)));
  EXPECT_EQ(DecodePackHeader(WithVersion(2)).error().code, ErrorCode::kUnsupported);
}

TEST(PackFormatTest, NamesAreExact) {
  EXPECT_EQ(PackFileName(PackId{0x2a}), "pack-0000002a.skp");
  EXPECT_EQ(ParsePackFileName("pack-0000002a.skp"), PackId{0x2a});
  EXPECT_EQ(ParsePackFileName("pack-ffffffff.skp"), PackId{0xffffffff});
  for (const char* name : {"pack-0000002A.skp", "pack-2a.skp", "pack-0000002a.skp~", "",
                           "pack-0000002a.new", "xpack-0000002a.skp", "pack-0000002g.skp"}) {
    EXPECT_FALSE(ParsePackFileName(name)) << name;
  }
  EXPECT_EQ(ParseUnfinishedPackFileName(UnfinishedPackFileName(PackId{7})), PackId{7});
}

}  // namespace
}  // namespace skippy
