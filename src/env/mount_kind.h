// What kind of file system a path lies on, decided from the magic number of statfs(2) and, for
// FUSE, from the mount table. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "skippy/env.h"

namespace skippy {

// Of a magic number other than FUSE's; kUnknown for a number that is not in the table.
FilesystemKind KindOfMagic(std::uint64_t magic);

// FUSE names its file system only in the mount table: the number alone does not tell sshfs from a
// local disk.
bool IsFuseMagic(std::uint64_t magic);

// `mount_info` is the text of /proc/self/mountinfo. Finds the mount with this device number.
// kNetwork for the known remote subtypes and for sources that name a host or URL, else kUnknown.
FilesystemKind KindOfFuseMount(std::string_view mount_info, std::uint32_t device_major,
                               std::uint32_t device_minor);

}  // namespace skippy
