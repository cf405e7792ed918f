#include "pack/pack_store.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/log.h"
#include "pack/pack_store_impl.h"

namespace skippy {
namespace {

std::uint64_t BlocksFor(std::uint64_t byte_count) {
  return byte_count / kBlockBytes + (byte_count % kBlockBytes != 0 ? 1 : 0);
}

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
  auto store = std::make_unique<PackStoreImpl>(PackPlace{env, options.directory, options.direct_io},
                                               options);
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
  MutexLock lock(mu_);
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

std::uint64_t PackStoreImpl::FinishRecovery() {
  MutexLock lock(mu_);
  recovering_ = false;
  return free_.block_count() * kBlockBytes;
}

// ---- room ---------------------------------------------------------------------------------------

std::uint64_t PackStoreImpl::NewPacksAllowed() const {
  const std::uint64_t taken_bytes = pack_file_bytes_ + foreign_bytes_;
  return taken_bytes >= capacity_bytes_ ? 0 : (capacity_bytes_ - taken_bytes) / pack_bytes_;
}

Result<ExtentList> PackStoreImpl::Allocate(std::uint64_t byte_count) {
  const std::uint64_t wanted_blocks = BlocksFor(byte_count);
  for (;;) {
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
      const std::uint64_t packs_needed =
          missing_blocks / blocks_per_new_pack_ + (missing_blocks % blocks_per_new_pack_ != 0);
      if (packs_needed > NewPacksAllowed()) {
        return TooFull(byte_count, capacity_bytes_);
      }
    }
    SKIPPY_RETURN_IF_ERROR(AddPack());
  }
}

// Space that existing packs may still ask for is as good as taken.
Status PackStoreImpl::CheckFreeSpace(const std::vector<PackPtr>& packs,
                                     std::uint64_t minimum_free_bytes) {
  std::uint64_t promised_bytes = pack_bytes_;
  for (const PackPtr& pack : packs) {
    SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t unbacked_bytes, pack->UnbackedBytes());
    promised_bytes += unbacked_bytes;
  }
  SKIPPY_ASSIGN_OR_RETURN(const SpaceInfo space, place_.env->Space(place_.directory));
  if (space.available_bytes < promised_bytes ||
      space.available_bytes - promised_bytes < minimum_free_bytes) {
    return MakeError(ErrorCode::kNoSpace,
                     "a new pack would leave less than " + std::to_string(minimum_free_bytes) +
                         " bytes free: " + std::to_string(space.available_bytes) +
                         " bytes are available, " + std::to_string(promised_bytes) +
                         " bytes would be taken");
  }
  return {};
}

// Makes one pack and frees its blocks, or waits for the thread that does. The capacity is charged
// before the first byte exists.
Status PackStoreImpl::AddPack() {
  std::vector<PackPtr> packs;
  PackHeader header;
  std::uint64_t minimum_free_bytes = 0;
  {
    MutexLock lock(mu_);
    if (creating_ || NewPacksAllowed() == 0) {
      return {};  // things changed since the caller looked; it looks again
    }
    if (next_pack_ > std::numeric_limits<std::uint32_t>::max()) {
      return MakeError(ErrorCode::kResourceExhausted, "all pack ids are used up");
    }
    header = PackHeader{PackId{static_cast<std::uint32_t>(next_pack_++)}, pack_bytes_};
    for (const auto& [id, pack] : packs_) {
      packs.push_back(pack);
    }
    minimum_free_bytes = minimum_free_bytes_;
    creating_ = true;
    pack_file_bytes_ += pack_bytes_;
  }
  Result<PackPtr> made = MakeError(ErrorCode::kInternal, "no pack was made");
  const Status space = CheckFreeSpace(packs, minimum_free_bytes);
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

std::uint64_t PackStoreImpl::AvailableBytes() const {
  MutexLock lock(mu_);
  const std::uint64_t free_blocks = recovering_ ? 0 : free_.block_count();
  return (free_blocks + NewPacksAllowed() * blocks_per_new_pack_) * kBlockBytes;
}

void PackStoreImpl::Free(const ExtentList& extents) {
  MutexLock lock(mu_);
  for (const Extent& extent : extents) {
    for (const Extent& part : quarantined_.PartsMissing(extent)) {
      free_.Add(part);
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

std::vector<PackStoreImpl::PackPtr> PackStoreImpl::EmptyPacks(std::uint64_t target_bytes) {
  std::vector<PackPtr> out;
  std::uint64_t left_bytes = pack_file_bytes_ + foreign_bytes_;
  for (auto it = packs_.rbegin(); it != packs_.rend() && left_bytes > target_bytes; ++it) {
    if (free_.BlocksOf(it->first) == it->second->Payload().block_count) {
      out.push_back(it->second);
      left_bytes -= it->second->pack_bytes();
    }
  }
  for (const PackPtr& pack : out) {
    SKIPPY_CHECK(free_.Take(pack->Payload()), PackFileName(pack->id()));
    payload_blocks_ -= pack->Payload().block_count;
    packs_.erase(pack->id());
    dirty_.erase(pack->id());
  }
  return out;
}

// The bytes stay charged until the file is gone.
Result<std::uint64_t> PackStoreImpl::DeleteEmptyPacks(std::uint64_t target_bytes) {
  std::vector<PackPtr> doomed;
  {
    MutexLock lock(mu_);
    if (!recovering_) {
      doomed = EmptyPacks(target_bytes);
    }
  }
  std::uint64_t freed_bytes = 0;
  Status outcome;
  for (const PackPtr& pack : doomed) {
    const Status removed =
        place_.env->RemoveFile(place_.directory + "/" + PackFileName(pack->id()));
    MutexLock lock(mu_);
    if (removed) {
      pack_file_bytes_ -= pack->pack_bytes();
      freed_bytes += pack->pack_bytes();
      continue;
    }
    outcome = removed;
    packs_.emplace(pack->id(), pack);
    free_.Add(pack->Payload());
    payload_blocks_ += pack->Payload().block_count;
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
  usage.physical_bytes = pack_file_bytes_ + foreign_bytes_;
  usage.live_bytes = (payload_blocks_ - (recovering_ ? 0 : free_.block_count())) * kBlockBytes;
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

// A thread that arrives during another's sync waits for it: its own writes may be among those that
// are being synced. A pack whose sync failed stays dirty, so that every later Sync fails as well.
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
  dirty_.insert(failed.begin(), failed.end());
  syncing_ = false;
  io_done_.NotifyAll();
  return outcome;
}

}  // namespace skippy
