// What a cache is opened with. Sizes are bytes. Built from flags, environment and configuration by
// src/control/options; the library itself reads no ambient settings.
#pragma once

#include <cstdint>
#include <string>

namespace skippy {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// Defaults of the disk tier (acceptance J2).
inline constexpr std::uint64_t kDefaultMinimumFreeBytes = 16 * kGiB;
inline constexpr std::uint64_t kLowestMinimumFreeBytes = 1 * kGiB;
inline constexpr std::uint64_t kAutoBudgetCeilingBytes = 64 * kGiB;
inline constexpr int kLowWaterPercent = 85;
// The RAM tier's budget when it is chosen: an eighth of physical memory, at most this.
inline constexpr std::uint64_t kAutoRamCeilingBytes = 8 * kGiB;

enum class DiskMode { kOff, kAuto, kFixed };

struct DiskOptions {
  DiskMode mode = DiskMode::kOff;
  std::string directory;           // absolute; created 0700 when missing
  std::uint64_t budget_bytes = 0;  // kFixed: the hard physical limit of the whole root
  std::uint64_t minimum_free_bytes = kDefaultMinimumFreeBytes;
  std::uint64_t pack_bytes = 0;  // 0: 256 MiB, less for small budgets
  bool direct_io = true;         // O_DIRECT for payload reads and writes where it works
};

struct RamOptions {
  std::uint64_t budget_bytes = 0;  // L2; 0 = off
  // Keep its memory, and that of buffers on their way to disk, from being swapped out. Where the
  // system refuses, the tier works unlocked and says why in its status.
  bool lock_pages = false;
};

struct CacheOptions {
  DiskOptions disk;
  RamOptions ram;
  // Bytes of recorded state that may wait to be written. A record that would pass it is dropped
  // and counted, never waited for.
  std::uint64_t write_queue_bytes = 256 * kMiB;
  // Threads that read and verify.
  int read_threads = 2;
  // Segments read ahead of the importer by one restore.
  int read_ahead_segments = 4;
};

}  // namespace skippy
