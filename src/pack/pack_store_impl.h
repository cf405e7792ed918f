// The PackStore over pack files of a directory: which packs there are, which of their blocks are
// free, and how much room is left. Private to src/pack.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "pack/extent_map.h"
#include "pack/pack_file.h"
#include "pack/pack_store.h"

namespace skippy {

// Blocks are in exactly one of four states: free (in free_), free without space behind them (in
// holes_), quarantined (in quarantined_), or allocated (in none). Lock: mu_, never held across I/O;
// making a pack, giving space back and syncing are done by one thread at a time, which the flags
// creating_ and syncing_ see to.
class PackStoreImpl final : public PackStore {
 public:
  PackStoreImpl(PackPlace place, const PackStoreOptions& options);

  // Reads the directory. To be called once, before anything else.
  Status Load();

  bool MarkUsed(const ExtentList& extents) override;
  std::uint64_t FinishRecovery() override;
  Result<ExtentList> Allocate(std::uint64_t byte_count) override;
  std::uint64_t AvailableBytes() const override;
  Status Write(const ExtentList& extents, std::span<const std::byte> bytes) override;
  Status Sync() override;
  Status Read(const ExtentList& extents, std::span<std::byte> out) const override;
  void Free(const ExtentList& extents) override;
  void Quarantine(const ExtentList& extents) override;
  Result<std::uint64_t> DeleteEmptyPacks(std::uint64_t target_bytes) override;
  Result<std::uint64_t> TrimFreeBlocks(std::uint64_t target_bytes) override;
  void SetLimits(std::uint64_t capacity_bytes, std::uint64_t minimum_free_bytes) override;
  PackUsage Usage() const override;
  std::vector<std::string> foreign_files() const override;

 private:
  using PackPtr = std::shared_ptr<PackFile>;

  // One transfer: a run of adjacent blocks and the part of the object that lies there.
  struct Piece {
    PackPtr pack;
    std::uint32_t first_block = 0;
    std::size_t object_offset = 0;
    std::size_t byte_count = 0;
  };

  Status LoadEntry(const std::string& name);
  Status LoadPack(PackId pack, const std::string& name);
  Status NoteForeign(const std::string& name, const std::string& why);

  // kInvalidArgument when the extents do not hold `byte_count` bytes, kNotFound for a missing pack.
  Result<std::vector<Piece>> Plan(const ExtentList& extents, std::size_t byte_count) const
      EXCLUDES(mu_);

  struct Room {
    std::uint64_t hole_blocks = 0;  // that the capacity lets us fill
    std::uint64_t new_packs = 0;    // beside them
  };
  Room RoomLeft() const REQUIRES(mu_);
  std::uint64_t TakenBytes() const REQUIRES(mu_) {
    return pack_file_bytes_ + foreign_bytes_ - holes_.block_count() * kBlockBytes;
  }
  // Makes `block_count` blocks of holes_ free again, or fewer when they lie apart.
  Status FillHoles(std::uint64_t block_count) EXCLUDES(mu_);
  // Packs that the capacity still allows.
  std::uint64_t NewPacksAllowed() const REQUIRES(mu_);
  Status AddPack() EXCLUDES(mu_);
  // Whether the file system has `wanted_bytes` more, besides what packs were promised.
  Status CheckFreeSpace(std::uint64_t wanted_bytes) EXCLUDES(mu_);

  // Takes what is free in the pack out of use for the life of the process.
  void Seal(PackId id) REQUIRES(mu_);
  void BoundQuarantine() REQUIRES(mu_);

  // A pack without a block in use, taken out of the maps. Its holes are not charged.
  struct EmptyPack {
    PackPtr pack;
    std::vector<Extent> free;
    std::vector<Extent> holes;
    std::uint64_t hole_bytes = 0;
  };
  std::vector<EmptyPack> TakeEmptyPacks(std::uint64_t target_bytes) REQUIRES(mu_);
  void PutBack(const EmptyPack& empty) REQUIRES(mu_);

  // Constant after construction.
  const PackPlace place_;
  const std::uint64_t pack_bytes_;
  const std::uint64_t blocks_per_new_pack_;

  mutable Mutex mu_;
  CondVar io_done_;  // creating_ or syncing_ became false
  std::map<PackId, PackPtr> packs_ GUARDED_BY(mu_);
  ExtentMap free_ GUARDED_BY(mu_);
  ExtentMap holes_ GUARDED_BY(mu_);
  ExtentMap quarantined_ GUARDED_BY(mu_);
  // Of quarantined_, oldest first: what was freed since.
  std::deque<Extent> unneeded_ GUARDED_BY(mu_);
  std::uint64_t unneeded_blocks_ GUARDED_BY(mu_) = 0;
  std::set<PackId> dirty_ GUARDED_BY(mu_);  // written since the last successful Sync
  std::vector<std::string> foreign_files_ GUARDED_BY(mu_);
  std::set<PackId> sealed_ GUARDED_BY(mu_);  // a sync of them failed
  // Packs whose free blocks may have lost their space before this start.
  std::set<PackId> sparse_ GUARDED_BY(mu_);
  std::uint64_t foreign_bytes_ GUARDED_BY(mu_) = 0;
  std::uint64_t pack_file_bytes_ GUARDED_BY(mu_) = 0;  // a pack in the making included
  std::uint64_t payload_blocks_ GUARDED_BY(mu_) = 0;
  std::uint64_t capacity_bytes_ GUARDED_BY(mu_);
  std::uint64_t minimum_free_bytes_ GUARDED_BY(mu_);
  std::uint64_t next_pack_ GUARDED_BY(mu_) = 0;  // ids are not used twice by one process
  bool recovering_ GUARDED_BY(mu_) = true;
  bool creating_ GUARDED_BY(mu_) = false;
  bool syncing_ GUARDED_BY(mu_) = false;
};

}  // namespace skippy
