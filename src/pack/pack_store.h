// Payload bytes on disk: preallocated pack files of one fixed size, cut into 4096-byte blocks,
// handed out as extents from a free map and reused in place. Knows nothing of segments, digests or
// the catalog; the caller remembers which extents are in use and says so at start-up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

inline constexpr std::uint64_t kBlockBytes = 4096;

// What an object of that size takes.
constexpr std::uint64_t BlockBytesFor(std::uint64_t byte_count) {
  return (byte_count / kBlockBytes + (byte_count % kBlockBytes != 0 ? 1 : 0)) * kBlockBytes;
}

enum class PackId : std::uint32_t {};

// A run of blocks inside one pack. Block 0 is the pack's header and never part of an extent.
struct Extent {
  PackId pack{};
  std::uint32_t first_block = 0;
  std::uint32_t block_count = 0;
  friend auto operator<=>(const Extent&, const Extent&) = default;
};

// The bytes of one object, in order; the last extent may be used in part.
using ExtentList = std::vector<Extent>;

struct PackStoreOptions {
  std::string directory;                 // exists, 0700, owned by the caller
  std::uint64_t pack_bytes = 0;          // of new packs; a multiple of kBlockBytes, >= 64 KiB
  std::uint64_t capacity_bytes = 0;      // sum of all pack files never passes this
  std::uint64_t minimum_free_bytes = 0;  // free space of the file system never taken below this
  bool direct_io = true;
  // Files open at a time, beside those with writes that wait for a Sync. Far below the 1,024
  // descriptors that a process usually may have; a pack is opened in microseconds.
  std::size_t open_packs_max = 256;
};

struct PackUsage {
  std::uint64_t capacity_bytes = 0;
  // All files of the directory, foreign ones included, without the holes in packs.
  std::uint64_t physical_bytes = 0;
  std::uint64_t live_bytes = 0;  // allocated extents, quarantined ones included
  std::uint64_t quarantined_bytes = 0;
  std::uint64_t pack_count = 0;
};

// Thread-safe. No lock is held across I/O: reads and writes of different extents run in parallel.
class PackStore {
 public:
  virtual ~PackStore() = default;

  // Finds the packs of the directory and checks their headers. Packs with a damaged or foreign
  // header, and files that are not packs, are left alone and reported by foreign_files(); a pack of
  // an unknown format version is kUnsupported. Until FinishRecovery every block counts as used.
  static Result<std::unique_ptr<PackStore>> Open(Env* env, const PackStoreOptions& options);

  // Start-up: the extents that the catalog knows. False when one lies outside its pack, in a pack
  // that is not there, or on blocks that are already taken: then nothing of the list is marked.
  virtual bool MarkUsed(const ExtentList& extents) = 0;
  // Ends start-up: all other blocks become free. Returns the number of bytes set free.
  virtual std::uint64_t FinishRecovery() = 0;

  // Blocks for `byte_count` bytes, creating and preallocating packs as needed (header written and
  // file and directory synced before the extent is returned: this does I/O).
  //   kResourceExhausted  the capacity is used up: evict and try again
  //   kNoSpace            the free-space reserve or the file system stands against a new pack
  virtual Result<ExtentList> Allocate(std::uint64_t byte_count) = 0;
  // Blocks that could be handed out without creating a pack, plus those of packs still allowed by
  // the capacity (not by free space).
  virtual std::uint64_t AvailableBytes() const = 0;

  // Bytes beyond the payload in its last block are written as zeros. Not durable before Sync.
  // bytes.data() should be 4096-aligned (else an aligned copy is made).
  virtual Status Write(const ExtentList& extents, std::span<const std::byte> bytes) = 0;
  // fdatasync of every pack written since the last Sync. After a failure none of what was written
  // since the Sync before may be referred to: free it. The packs concerned take no new bytes until
  // the next start, their free blocks count as quarantined; later Syncs are not affected. Writes
  // and the Sync that covers them are one thread's.
  virtual Status Sync() = 0;
  // Reads out.size() bytes of the object from its start. `out` 4096-aligned for direct I/O (else
  // through an aligned copy). kCorrupt on a short file, kIo on a failed read.
  virtual Status Read(const ExtentList& extents, std::span<std::byte> out) const = 0;

  // Makes the blocks reusable, quarantined ones later: a sixteenth of the capacity of them stays
  // out of use, the oldest come back first. The caller guarantees that no catalog row and no reader
  // needs them.
  virtual void Free(const ExtentList& extents) = 0;
  // Takes the blocks out of use: until they are freed and others took their place in quarantine, or
  // for the life of the process.
  virtual void Quarantine(const ExtentList& extents) = 0;

  // Deletes packs without a live block, newest first, until physical bytes <= target.
  // Returns the bytes freed.
  virtual Result<std::uint64_t> DeleteEmptyPacks(std::uint64_t target_bytes) = 0;

  // Gives free blocks of packs back to the file system, those of the newest pack first, until
  // physical bytes <= target. They stay usable: Allocate gets their space back, within the
  // capacity, before it hands them out. Returns the bytes given back.
  virtual Result<std::uint64_t> TrimFreeBlocks(std::uint64_t target_bytes) = 0;

  // Takes effect for the next Allocate; existing packs stay until they are empty.
  virtual void SetLimits(std::uint64_t capacity_bytes, std::uint64_t minimum_free_bytes) = 0;

  virtual PackUsage Usage() const = 0;
  virtual std::vector<std::string> foreign_files() const = 0;
};

}  // namespace skippy
