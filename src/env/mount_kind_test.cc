// Goal: FUSE alone does not mean remote; the mount table decides. Method: literal mount tables.
#include "env/mount_kind.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

constexpr std::string_view kMounts =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "40 22 0:50 / /mnt/s rw,nosuid shared:9 - fuse.sshfs user@host:/data rw,user_id=0\n"
    "41 22 0:51 / /mnt/n rw - fuseblk /dev/sdb1 rw\n"
    "42 22 0:52 / /mnt/d rw - fuse https://dav.example.org/x rw\n"
    "43 22 0:53 / /mnt/m rw master:1 - fuse.mergerfs /a:/b rw\n"
    "44 22 0:54 / /mnt/o rw - fuse sshfs#user@host: rw\n";

// Proves D10.
TEST(MountKindTest, TellsRemoteFuseFromLocalFuse) {
  EXPECT_EQ(KindOfFuseMount(kMounts, 0, 50), FilesystemKind::kNetwork);
  EXPECT_EQ(KindOfFuseMount(kMounts, 0, 51), FilesystemKind::kUnknown);
  EXPECT_EQ(KindOfFuseMount(kMounts, 0, 52), FilesystemKind::kNetwork);
  EXPECT_EQ(KindOfFuseMount(kMounts, 0, 53), FilesystemKind::kUnknown);
  EXPECT_EQ(KindOfFuseMount(kMounts, 0, 54), FilesystemKind::kNetwork);
}

TEST(MountKindTest, UnknownDeviceAndDamagedTablesAreUnknown) {
  EXPECT_EQ(KindOfFuseMount(kMounts, 9, 9), FilesystemKind::kUnknown);
  EXPECT_EQ(KindOfFuseMount("", 0, 50), FilesystemKind::kUnknown);
  EXPECT_EQ(KindOfFuseMount("40 22 0:50 / /mnt -\n-\n\n", 0, 50), FilesystemKind::kUnknown);
}

TEST(MountKindTest, KnowsTheCommonNumbers) {
  EXPECT_EQ(KindOfMagic(0xEF53), FilesystemKind::kPreallocating);
  EXPECT_EQ(KindOfMagic(0x9123683E), FilesystemKind::kCopyOnWrite);
  EXPECT_EQ(KindOfMagic(0x01021994), FilesystemKind::kMemory);
  EXPECT_EQ(KindOfMagic(0x6969), FilesystemKind::kNetwork);
  EXPECT_EQ(KindOfMagic(0xFF534D42), FilesystemKind::kNetwork);
  EXPECT_EQ(KindOfMagic(1), FilesystemKind::kUnknown);
  EXPECT_TRUE(IsFuseMagic(0x65735546));
}

}  // namespace
}  // namespace skippy
