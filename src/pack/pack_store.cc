#include "pack/pack_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "pack/pack_store_impl.h"

namespace skippy {
namespace {

std::uint64_t BlocksFor(std::uint64_t byte_count) {
  return byte_count / kBlockBytes + (byte_count % kBlockBytes != 0 ? 1 : 0);
}

// Of holes that are filled at a time: many objects, few calls.
constexpr std::uint64_t kFillBlocks = 1024;

// Of the capacity, one part of so many may lie in quarantine when nothing needs it any more.
constexpr std::uint64_t kQuarantineShare = 16;

Error TooFull(std::uint64_t byte_count, std::uint64_t capacity_bytes) {
  return MakeError(ErrorCode::kResourceExhausted, "no room for " + std::to_string(byte_count) +
                                                      " bytes within a capacity of " +
                                                      std::to_string(capacity_bytes) + " bytes");
}

}  // namespace

Result<std::unique_ptr<PackStore>> PackStore::Open(Env* env, const PackStoreOptions& options) {
  if (!IsValidPackBytes(options.pack_bytes)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "pack_bytes must be a multiple of 4096 and at least 64 KiB, not " +
                         std::to_string(options.pack_bytes));
  }
  PackPlace place{env, options.directory, options.direct_io,
                  std::make_shared<OpenPacks>(env, options.open_packs_max)};
  auto store = std::make_unique<PackStoreImpl>(std::move(place), options);
  SKIPPY_RETURN_IF_ERROR(store->Load());
  return std::unique_ptr<PackStore>(std::move(store));
}

PackStoreImpl::PackStoreImpl(PackPlace place, const PackStoreOptions& options)
    : place_(std::move(place)),
      pack_bytes_(options.pack_bytes),
      blocks_per_new_pack_(options.pack_bytes / kBlockBytes - 1),
      capacity_bytes_(options.capacity_bytes),
      minimum_free_bytes_(options.minimum_free_bytes) {}

// ---- start-up -----------------------------------------------------------------------------------

Status PackStoreImpl::Load() {
  SKIPPY_ASSIGN_OR_RETURN(std::vector<std::string> names,
                          place_.env->ListDirectory(place_.directory));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    SKIPPY_RETURN_IF_ERROR(LoadEntry(name));
  }
  return {};
}

Status PackStoreImpl::LoadEntry(const std::string& name) {
  if (ParseUnfinishedPackFileName(name)) {
    LogInfo("removing {}: a pack that was never finished", name);
    return place_.env->RemoveFile(place_.directory + "/" + name);
  }
  const std::optional<PackId> pack = ParsePackFileName(name);
  return pack ? LoadPack(*pack, name) : NoteForeign(name, "not a pack");
}

Status PackStoreImpl::LoadPack(PackId pack, const std::string& name) {
  {
    MutexLock lock(mu_);
    next_pack_ = std::max(next_pack_, std::uint64_t{static_cast<std::uint32_t>(pack)} + 1);
  }
  Result<PackPtr> file = PackFile::Open(place_, pack);
  if (!file) {
    const ErrorCode code = file.error().code;
    if (code == ErrorCode::kCorrupt || code == ErrorCode::kInvalidArgument ||
        code == ErrorCode::kIo) {
      return NoteForeign(name, file.error().text);
    }
    return std::move(file).error();
  }
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t unbacked_bytes, (*file)->UnbackedBytes());
  SKIPPY_ASSIGN_OR_RETURN(const FilesystemKind filesystem,
                          place_.env->Filesystem(place_.directory));
  MutexLock lock(mu_);
  // Where nothing is allocated ahead, what is missing was never written: no hole of ours.
  if (unbacked_bytes >= kBlockBytes && filesystem != FilesystemKind::kCopyOnWrite) {
    sparse_.insert(pack);
  }
  packs_.emplace(pack, *file);
  free_.Add((*file)->Payload());
  payload_blocks_ += (*file)->Payload().block_count;
  pack_file_bytes_ += (*file)->pack_bytes();
  return {};
}

// Its bytes count: the directory as a whole has to stay within the capacity.
Status PackStoreImpl::NoteForeign(const std::string& name, const std::string& why) {
  LogWarning("leaving {}/{} alone: {}", place_.directory, name, why);
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, place_.env->Stat(place_.directory + "/" + name));
  MutexLock lock(mu_);
  foreign_files_.push_back(name);
  foreign_bytes_ += std::max(info.allocated_bytes, info.file_bytes);
  return {};
}

bool PackStoreImpl::MarkUsed(const ExtentList& extents) {
  MutexLock lock(mu_);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (!free_.Take(extents[i])) {
      for (std::size_t taken = 0; taken < i; ++taken) {
        free_.Add(extents[taken]);
      }
      return false;
    }
  }
  return true;
}

// Which blocks of a sparse pack have no space behind them is not known: after this none of the free
// ones has.
std::uint64_t PackStoreImpl::FinishRecovery() {
  std::vector<std::pair<PackPtr, Extent>> doubtful;
  {
    MutexLock lock(mu_);
    for (const PackId id : std::exchange(sparse_, {})) {
      for (const Extent& extent : free_.TakeAllOf(id)) doubtful.emplace_back(packs_.at(id), extent);
    }
  }
  for (const auto& [pack, extent] : doubtful) {
    const Status punched = pack->Punch(extent.first_block, extent.block_count);
    MutexLock lock(mu_);
    (punched ? holes_ : free_).Add(extent);
  }
  MutexLock lock(mu_);
  recovering_ = false;
  return (free_.block_count() + holes_.block_count()) * kBlockBytes;
}

// ---- room ---------------------------------------------------------------------------------------

std::uint64_t PackStoreImpl::NewPacksAllowed() const { return RoomLeft().new_packs; }

PackStoreImpl::Room PackStoreImpl::RoomLeft() const {
  const std::uint64_t taken_bytes = TakenBytes();
  const std::uint64_t left_bytes =
      capacity_bytes_ > taken_bytes ? capacity_bytes_ - taken_bytes : 0;
  Room room;
  room.hole_blocks = std::min(holes_.block_count(), left_bytes / kBlockBytes);
  room.new_packs = (left_bytes - room.hole_blocks * kBlockBytes) / pack_bytes_;
  return room;
}

Result<ExtentList> PackStoreImpl::Allocate(std::uint64_t byte_count) {
  const std::uint64_t wanted_blocks = BlocksFor(byte_count);
  for (;;) {
    std::uint64_t fill_blocks = 0;
    {
      MutexLock lock(mu_);
      if (recovering_) {
        return MakeError(ErrorCode::kUnavailable, "the pack store is still being recovered");
      }
      while (creating_ && free_.block_count() < wanted_blocks) {
        io_done_.Wait(mu_);
      }
      if (std::optional<ExtentList> extents = free_.Allocate(wanted_blocks)) {
        return std::move(*extents);
      }
      const std::uint64_t missing_blocks = wanted_blocks - free_.block_count();
      const Room room = RoomLeft();
      const std::uint64_t beyond = missing_blocks - std::min(missing_blocks, room.hole_blocks);
      if ((beyond + blocks_per_new_pack_ - 1) / blocks_per_new_pack_ > room.new_packs) {
        return TooFull(byte_count, capacity_bytes_);
      }
      fill_blocks = std::min(room.hole_blocks, std::max(missing_blocks, kFillBlocks));
    }
    SKIPPY_RETURN_IF_ERROR(fill_blocks > 0 ? FillHoles(fill_blocks) : AddPack());
  }
}

// Space that existing packs may still ask for is as good as taken.
Status PackStoreImpl::CheckFreeSpace(std::uint64_t wanted_bytes) {
  std::vector<std::pair<PackPtr, std::uint64_t>> packs;  // with the bytes of their holes
  std::uint64_t minimum_free_bytes = 0;
  {
    MutexLock lock(mu_);
    for (const auto& [id, pack] : packs_) {
      packs.emplace_back(pack, holes_.BlocksOf(id) * kBlockBytes);
    }
    minimum_free_bytes = minimum_free_bytes_;
  }
  std::uint64_t promised_bytes = wanted_bytes;
  for (const auto& [pack, hole_bytes] : packs) {
    SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t unbacked_bytes, pack->UnbackedBytes());
    promised_bytes += unbacked_bytes - std::min(unbacked_bytes, hole_bytes);
  }
  SKIPPY_ASSIGN_OR_RETURN(const SpaceInfo space, place_.env->Space(place_.directory));
  if (space.available_bytes < promised_bytes ||
      space.available_bytes - promised_bytes < minimum_free_bytes) {
    return MakeError(ErrorCode::kNoSpace,
                     "more for packs would leave less than " + std::to_string(minimum_free_bytes) +
                         " bytes free: " + std::to_string(space.available_bytes) +
                         " bytes are available, " + std::to_string(promised_bytes) +
                         " bytes would be taken");
  }
  return {};
}

// Makes one pack and frees its blocks, or waits for the thread that does. The capacity is charged
// before the first byte exists.
Status PackStoreImpl::AddPack() {
  PackHeader header;
  {
    MutexLock lock(mu_);
    if (creating_ || NewPacksAllowed() == 0) {
      return {};  // things changed since the caller looked; it looks again
    }
    if (next_pack_ > std::numeric_limits<std::uint32_t>::max()) {
      return MakeError(ErrorCode::kResourceExhausted, "all pack ids are used up");
    }
    header = PackHeader{PackId{static_cast<std::uint32_t>(next_pack_++)}, pack_bytes_};
    creating_ = true;
    pack_file_bytes_ += pack_bytes_;
  }
  Result<PackPtr> made = MakeError(ErrorCode::kInternal, "no pack was made");
  const Status space = CheckFreeSpace(pack_bytes_);
  if (space) {
    made = PackFile::Create(place_, header);
  } else {
    made = space.error();
  }
  MutexLock lock(mu_);
  creating_ = false;
  io_done_.NotifyAll();
  if (!made) {
    pack_file_bytes_ -= pack_bytes_;
    return std::move(made).error();
  }
  packs_.emplace(header.pack, *made);
  free_.Add((*made)->Payload());
  payload_blocks_ += blocks_per_new_pack_;
  return {};
}

// As AddPack, with space that was given back before. Taking blocks out of holes_ charges them.
Status PackStoreImpl::FillHoles(std::uint64_t block_count) {
  Extent extent;
  PackPtr pack;
  {
    MutexLock lock(mu_);
    const std::uint64_t allowed_blocks = std::min(block_count, RoomLeft().hole_blocks);
    if (creating_ || allowed_blocks == 0) {
      return {};  // things changed since the caller looked; it looks again
    }
    extent = holes_.TakeSome(allowed_blocks);
    pack = packs_.at(extent.pack);
    creating_ = true;
  }
  Status backed = CheckFreeSpace(0);
  if (backed) {
    backed = pack->Back(extent.first_block, extent.block_count);
  }
  MutexLock lock(mu_);
  creating_ = false;
  io_done_.NotifyAll();
  ExtentMap& usable = sealed_.contains(extent.pack) ? quarantined_ : free_;
  (backed ? usable : holes_).Add(extent);
  return backed;
}

Result<std::uint64_t> PackStoreImpl::TrimFreeBlocks(std::uint64_t target_bytes) {
  std::uint64_t given_back_bytes = 0;
  for (;;) {
    Extent extent;
    PackPtr pack;
    {
      MutexLock lock(mu_);
      while (creating_) {
        io_done_.Wait(mu_);
      }
      const std::uint64_t taken_bytes = TakenBytes();
      if (recovering_ || taken_bytes <= target_bytes || free_.block_count() == 0) {
        return given_back_bytes;
      }
      extent = free_.TakeLast(BlocksFor(taken_bytes - target_bytes));
      pack = packs_.at(extent.pack);
      creating_ = true;
    }
    const Status punched = pack->Punch(extent.first_block, extent.block_count);
    MutexLock lock(mu_);
    creating_ = false;
    io_done_.NotifyAll();
    (punched ? holes_ : free_).Add(extent);
    if (!punched) {
      return punched.error();
    }
    given_back_bytes += extent.block_count * kBlockBytes;
  }
}

std::uint64_t PackStoreImpl::AvailableBytes() const {
  MutexLock lock(mu_);
  const Room room = RoomLeft();
  const std::uint64_t free_blocks = recovering_ ? 0 : free_.block_count() + room.hole_blocks;
  return (free_blocks + room.new_packs * blocks_per_new_pack_) * kBlockBytes;
}

void PackStoreImpl::Free(const ExtentList& extents) {
  MutexLock lock(mu_);
  for (const Extent& extent : extents) {
    ExtentMap& target = sealed_.contains(extent.pack) ? quarantined_ : free_;
    const std::vector<Extent> parts = quarantined_.PartsMissing(extent);
    for (const Extent& part : parts) {
      target.Add(part);
    }
    if (parts.empty()) {
      unneeded_.push_back(extent);
      unneeded_blocks_ += extent.block_count;
    }
  }
  BoundQuarantine();
}

// The oldest come back. What a row or a reader may still need, and sealed packs, do not.
void PackStoreImpl::BoundQuarantine() {
  const std::uint64_t limit_blocks = capacity_bytes_ / kQuarantineShare / kBlockBytes;
  while (unneeded_blocks_ > limit_blocks) {
    const Extent extent = unneeded_.front();
    unneeded_.pop_front();
    unneeded_blocks_ -= extent.block_count;
    if (!sealed_.contains(extent.pack) && quarantined_.Take(extent)) {
      free_.Add(extent);
    }
  }
}

void PackStoreImpl::Quarantine(const ExtentList& extents) {
  MutexLock lock(mu_);
  for (const Extent& extent : extents) {
    for (const Extent& part : quarantined_.PartsMissing(extent)) {
      quarantined_.Add(part);
    }
  }
}

std::vector<PackStoreImpl::EmptyPack> PackStoreImpl::TakeEmptyPacks(std::uint64_t target_bytes) {
  std::vector<EmptyPack> out;
  std::uint64_t left_bytes = TakenBytes();
  for (auto it = packs_.rbegin(); it != packs_.rend() && left_bytes > target_bytes; ++it) {
    const std::uint64_t hole_blocks = holes_.BlocksOf(it->first);
    if (free_.BlocksOf(it->first) + hole_blocks == it->second->Payload().block_count) {
      out.push_back({.pack = it->second});
      left_bytes -= it->second->pack_bytes() - hole_blocks * kBlockBytes;
    }
  }
  for (EmptyPack& empty : out) {
    const PackId id = empty.pack->id();
    empty.hole_bytes = holes_.BlocksOf(id) * kBlockBytes;
    pack_file_bytes_ -= empty.hole_bytes;
    empty.free = free_.TakeAllOf(id);
    empty.holes = holes_.TakeAllOf(id);
    payload_blocks_ -= empty.pack->Payload().block_count;
    packs_.erase(id);
    dirty_.erase(id);
  }
  return out;
}

void PackStoreImpl::PutBack(const EmptyPack& empty) {
  packs_.emplace(empty.pack->id(), empty.pack);
  for (const Extent& extent : empty.free) free_.Add(extent);
  for (const Extent& extent : empty.holes) holes_.Add(extent);
  pack_file_bytes_ += empty.hole_bytes;
  payload_blocks_ += empty.pack->Payload().block_count;
}

// The bytes stay charged until the file is gone.
Result<std::uint64_t> PackStoreImpl::DeleteEmptyPacks(std::uint64_t target_bytes) {
  std::vector<EmptyPack> doomed;
  {
    MutexLock lock(mu_);
    if (!recovering_) {
      doomed = TakeEmptyPacks(target_bytes);
    }
  }
  std::uint64_t freed_bytes = 0;
  Status outcome;
  for (const EmptyPack& empty : doomed) {
    const Status removed =
        place_.env->RemoveFile(place_.directory + "/" + PackFileName(empty.pack->id()));
    MutexLock lock(mu_);
    if (!removed) {
      outcome = removed;
      PutBack(empty);
      continue;
    }
    pack_file_bytes_ -= empty.pack->pack_bytes() - empty.hole_bytes;
    freed_bytes += empty.pack->pack_bytes() - empty.hole_bytes;
  }
  if (freed_bytes > 0) {
    SKIPPY_RETURN_IF_ERROR(place_.env->SyncDirectory(place_.directory));
  }
  if (!outcome) {
    return std::move(outcome).error();
  }
  return freed_bytes;
}

void PackStoreImpl::SetLimits(std::uint64_t capacity_bytes, std::uint64_t minimum_free_bytes) {
  MutexLock lock(mu_);
  capacity_bytes_ = capacity_bytes;
  minimum_free_bytes_ = minimum_free_bytes;
}

PackUsage PackStoreImpl::Usage() const {
  MutexLock lock(mu_);
  PackUsage usage;
  usage.capacity_bytes = capacity_bytes_;
  usage.physical_bytes = TakenBytes();
  const std::uint64_t free_blocks = recovering_ ? 0 : free_.block_count() + holes_.block_count();
  usage.live_bytes = (payload_blocks_ - free_blocks) * kBlockBytes;
  usage.quarantined_bytes = quarantined_.block_count() * kBlockBytes;
  usage.pack_count = packs_.size();
  return usage;
}

std::vector<std::string> PackStoreImpl::foreign_files() const {
  MutexLock lock(mu_);
  return foreign_files_;
}

// ---- payload ------------------------------------------------------------------------------------

Result<std::vector<PackStoreImpl::Piece>> PackStoreImpl::Plan(const ExtentList& extents,
                                                              std::size_t byte_count) const {
  std::vector<Piece> pieces;
  std::size_t planned_bytes = 0;
  MutexLock lock(mu_);
  for (const Extent& extent : extents) {
    if (planned_bytes == byte_count) {
      break;
    }
    const auto pack = packs_.find(extent.pack);
    if (pack == packs_.end()) {
      return MakeError(ErrorCode::kNotFound, PackFileName(extent.pack) + " is not there");
    }
    const Extent payload = pack->second->Payload();
    const std::uint64_t end_block = std::uint64_t{extent.first_block} + extent.block_count;
    if (extent.first_block == 0 || end_block > std::uint64_t{payload.block_count} + 1) {
      return MakeError(ErrorCode::kInvalidArgument, "extent outside " + PackFileName(extent.pack));
    }
    const std::size_t piece_bytes =
        std::min<std::uint64_t>(extent.block_count * kBlockBytes, byte_count - planned_bytes);
    Piece* const last = pieces.empty() ? nullptr : &pieces.back();
    if (last != nullptr && last->pack == pack->second &&
        last->first_block * kBlockBytes + last->byte_count == extent.first_block * kBlockBytes) {
      last->byte_count += piece_bytes;
    } else {
      pieces.push_back(Piece{pack->second, extent.first_block, planned_bytes, piece_bytes});
    }
    planned_bytes += piece_bytes;
  }
  if (planned_bytes != byte_count) {
    return MakeError(ErrorCode::kInvalidArgument, "the extents are smaller than the object");
  }
  return pieces;
}

Status PackStoreImpl::Write(const ExtentList& extents, std::span<const std::byte> bytes) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, Plan(extents, bytes.size()));
  for (const Piece& piece : pieces) {
    SKIPPY_RETURN_IF_ERROR(
        piece.pack->Write(piece.first_block, bytes.subspan(piece.object_offset, piece.byte_count)));
    MutexLock lock(mu_);
    dirty_.insert(piece.pack->id());
  }
  return {};
}

Status PackStoreImpl::Read(const ExtentList& extents, std::span<std::byte> out) const {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, Plan(extents, out.size()));
  for (const Piece& piece : pieces) {
    SKIPPY_RETURN_IF_ERROR(
        piece.pack->Read(piece.first_block, out.subspan(piece.object_offset, piece.byte_count)));
  }
  return {};
}

// A pack whose sync failed takes no more bytes: what its file holds is unknown from now on, and the
// operating system reports such a failure once only.
Status PackStoreImpl::Sync() {
  std::vector<PackPtr> packs;
  {
    MutexLock lock(mu_);
    while (syncing_) {
      io_done_.Wait(mu_);
    }
    for (const PackId id : dirty_) {
      if (const auto pack = packs_.find(id); pack != packs_.end()) {  // else deleted meanwhile
        packs.push_back(pack->second);
      }
    }
    dirty_.clear();
    syncing_ = true;
  }
  Status outcome;
  std::vector<PackId> failed;
  for (const PackPtr& pack : packs) {
    const Status synced = pack->Sync();
    if (!synced) {
      outcome = synced;
      failed.push_back(pack->id());
    }
  }
  MutexLock lock(mu_);
  for (const PackId id : failed) Seal(id);
  syncing_ = false;
  io_done_.NotifyAll();
  return outcome;
}

void PackStoreImpl::Seal(PackId id) {
  LogWarning("pack {}: a sync failed; nothing more is written to it until the next start",
             PackFileName(id));
  sealed_.insert(id);
  for (const Extent& extent : free_.TakeAllOf(id)) quarantined_.Add(extent);
}

}  // namespace skippy
