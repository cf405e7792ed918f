// BLAKE3 of whole files, remembered between runs.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "index/identity.h"
#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

// The digest of every file of `paths`, in order. Reads each file once; a file whose device, inode,
// bytes, modification and change time stand in the memo of `memo_directory` is not read. The
// directory is created when missing; empty: nothing is remembered. A memo that cannot be read or
// written costs time, never the result. kCancelled soon after *cancel became true (`cancel` may be
// null); kIo / kNotFound name the file; kBusy: a file changed while it was read.
// Any thread; blocks for as long as reading takes.
Result<std::vector<ContentDigest>> DigestFiles(Env* env, const std::vector<std::string>& paths,
                                               const std::string& memo_directory,
                                               const std::atomic<bool>* cancel);

}  // namespace skippy
