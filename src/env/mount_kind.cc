#include "env/mount_kind.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace skippy {
namespace {

struct MagicKind {
  std::uint64_t magic;
  FilesystemKind kind;
};

// Numbers from statfs(2) and linux/magic.h.
constexpr MagicKind kMagicKinds[] = {
    {0xEF53, FilesystemKind::kPreallocating},      // ext2, ext3, ext4
    {0x58465342, FilesystemKind::kPreallocating},  // xfs
    {0x9123683E, FilesystemKind::kCopyOnWrite},    // btrfs
    {0x2FC12FC1, FilesystemKind::kCopyOnWrite},    // zfs
    {0xCA451A4E, FilesystemKind::kCopyOnWrite},    // bcachefs
    {0x794C7630, FilesystemKind::kCopyOnWrite},    // overlay: what lies below is not visible
    {0x01021994, FilesystemKind::kMemory},         // tmpfs
    {0x858458F6, FilesystemKind::kMemory},         // ramfs
    {0x6969, FilesystemKind::kNetwork},            // nfs
    {0x517B, FilesystemKind::kNetwork},            // smb
    {0xFF534D42, FilesystemKind::kNetwork},        // cifs
    {0xFE534D42, FilesystemKind::kNetwork},        // smb2
    {0x01021997, FilesystemKind::kNetwork},        // 9p
    {0x00C36400, FilesystemKind::kNetwork},        // ceph
    {0x73757245, FilesystemKind::kNetwork},        // coda
    {0x5346414F, FilesystemKind::kNetwork},        // afs
    {0x6B414653, FilesystemKind::kNetwork},        // kafs
    {0x564C, FilesystemKind::kNetwork},            // ncp
    {0x0BD00BD0, FilesystemKind::kNetwork},        // lustre
    {0x47504653, FilesystemKind::kNetwork},        // gpfs
    {0x7461636F, FilesystemKind::kNetwork},        // ocfs2
    {0x01161970, FilesystemKind::kNetwork},        // gfs2
    {0x19830326, FilesystemKind::kNetwork},        // beegfs
    {0x786F4256, FilesystemKind::kNetwork},        // vboxsf
};

constexpr std::uint64_t kFuseMagic = 0x65735546;

// Subtypes as they stand after "fuse." in the mount table, or before '#' in an old-style source.
constexpr std::array<std::string_view, 31> kRemoteFuse = {
    "sshfs",    "s3fs",      "rclone",    "davfs",     "davfs2",     "webdavfs",  "webdav",
    "goofys",   "gcsfuse",   "glusterfs", "ceph",      "ceph-fuse",  "curlftpfs", "smbnetfs",
    "blobfuse", "blobfuse2", "juicefs",   "JuiceFS",   "mfs",        "mfsmount",  "moosefs",
    "lizardfs", "hdfs",      "fuse_dfs",  "seaweedfs", "gvfsd-fuse", "mount-s3",  "mountpoint-s3",
    "cvmfs2",   "fuse-nfs",  "weed"};

struct MountLine {
  std::string_view device;  // "major:minor"
  std::string_view type;    // "fuse.sshfs"
  std::string_view source;  // "host:/path"
};

std::vector<std::string_view> SplitOn(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) {
      out.push_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// "36 35 98:0 /root /mount options [optional ...] - type source super-options"; see proc(5).
MountLine ParseMountLine(std::string_view line) {
  MountLine out;
  const std::vector<std::string_view> fields = SplitOn(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (fields.size() < 3 || dash == fields.end() || fields.end() - dash < 3) {
    return out;
  }
  out.device = fields[2];
  out.type = dash[1];
  out.source = dash[2];
  return out;
}

bool NamesRemote(std::string_view subtype) {
  return std::find(kRemoteFuse.begin(), kRemoteFuse.end(), subtype) != kRemoteFuse.end();
}

// "https://...", "sshfs#user@host:", "user@host:/path", "host:/path"; not "/dev/sda1".
bool SourceIsRemote(std::string_view source) {
  if (source.find("://") != std::string_view::npos) {
    return true;
  }
  const std::size_t hash = source.find('#');
  if (hash != std::string_view::npos && NamesRemote(source.substr(0, hash))) {
    return true;
  }
  const std::size_t colon = source.find(':');
  return colon != std::string_view::npos && source.find('/') > colon;
}

}  // namespace

FilesystemKind KindOfMagic(std::uint64_t magic) {
  for (const MagicKind& entry : kMagicKinds) {
    if (entry.magic == magic) {
      return entry.kind;
    }
  }
  return FilesystemKind::kUnknown;
}

bool IsFuseMagic(std::uint64_t magic) { return magic == kFuseMagic; }

FilesystemKind KindOfFuseMount(std::string_view mount_info, std::uint32_t device_major,
                               std::uint32_t device_minor) {
  const std::string device = std::to_string(device_major) + ":" + std::to_string(device_minor);
  for (const std::string_view line : SplitOn(mount_info, '\n')) {
    const MountLine mount = ParseMountLine(line);
    if (mount.device != device) {
      continue;
    }
    const std::size_t dot = mount.type.find('.');
    const std::string_view subtype =
        dot == std::string_view::npos ? std::string_view() : mount.type.substr(dot + 1);
    return NamesRemote(subtype) || SourceIsRemote(mount.source) ? FilesystemKind::kNetwork
                                                                : FilesystemKind::kUnknown;
  }
  return FilesystemKind::kUnknown;
}

}  // namespace skippy
