#include "cache/writer.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "base/log.h"

namespace skippy {
namespace {

constexpr std::size_t kGroupSegments = 64;
constexpr std::size_t kGroupManifests = 1024;
constexpr std::uint64_t kGroupBytes = 64 * kMiB;
constexpr std::size_t kBatchRemovals = 256;
constexpr std::size_t kBatchTouches = 512;

}  // namespace

void Writer::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Writer::Stop() {
  {
    MutexLock lock(shared_.mu);
    shared_.tables.closing = true;
    shared_.work.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(shared_.mu);
  shared_.tables.writer_stopped = true;
  shared_.settled.NotifyAll();
}

bool Writer::RunBetweenGroups(std::function<void()> job) {
  bool done = false;
  MutexLock lock(shared_.mu);
  if (shared_.tables.writer_stopped || shared_.tables.closing) return false;
  shared_.tables.jobs.push_back([&] {
    job();
    MutexLock job_lock(shared_.mu);
    done = true;
    shared_.settled.NotifyAll();
  });
  shared_.work.NotifyOne();
  while (!done) shared_.settled.Wait(shared_.mu);
  return true;
}

void Writer::Loop() {
  Group group;
  std::function<void()> job;
  while (WaitForWork(&group, &job)) {
    if (job) {
      job();
      continue;
    }
    WriteGroup(group);
    MutexLock lock(shared_.mu);
    for (const ManifestId id : group.used) {
      const Ledger::Manifest* manifest = shared_.tables.ledger.FindManifest(id);
      if (manifest != nullptr) shared_.TouchInRam(manifest->row.tip);
    }
    shared_.tables.settled_items += group.item_count;
    shared_.settled.NotifyAll();
  }
  CommitTouches();
}

bool Writer::WaitForWork(Group* group, std::function<void()>* job) {
  *group = {};
  *job = nullptr;
  CacheTables& tables = shared_.tables;
  MutexLock lock(shared_.mu);
  for (;;) {
    if (!tables.jobs.empty()) {
      *job = std::move(tables.jobs.front());
      tables.jobs.pop_front();
      return true;
    }
    if (!tables.queue.empty()) {
      TakeGroup(group);
      return true;
    }
    const bool removals = !tables.removed_segments.empty() || !tables.removed_manifests.empty();
    if (removals && !removals_wait_) return true;
    if (tables.closing) return false;
    shared_.work.Wait(shared_.mu);
  }
}

void Writer::TakeGroup(Group* group) {
  CacheTables& tables = shared_.tables;
  std::uint64_t byte_count = 0;
  while (!tables.queue.empty() && group->segments.size() < kGroupSegments &&
         group->manifests.size() < kGroupManifests && byte_count < kGroupBytes) {
    const WriteItem item = tables.queue.front();
    tables.queue.pop_front();
    ++group->item_count;
    if (item.manifest != ManifestId::kNone) {
      group->manifests.push_back(item.manifest);
      if (item.is_use) group->used.push_back(item.manifest);
      continue;
    }
    const auto place = tables.places.find(item.segment);
    if (place == tables.places.end()) continue;  // removed meanwhile
    group->segments.push_back(item.segment);
    byte_count += place->second.byte_count;
  }
}

void Writer::WriteGroup(const Group& group) {
  std::vector<Written> written;
  if (!group.segments.empty()) {
    const Refusal refusal = shared_.has_disk() ? CheckSpace() : Refusal{};
    for (const SegmentId id : group.segments) WriteSegment(id, refusal, &written);
  }
  if (!shared_.has_disk()) return;
  if (!written.empty()) {
    if (const Status synced = shared_.disk.packs->Sync(); !synced) {
      Forget(group, &written, synced.error());
      return;
    }
  }
  CommitGroup(group, std::move(written));
}

bool Writer::HasDurableParent(SegmentId id, const std::vector<Written>& written) {
  const SegmentId parent = shared_.tables.ledger.FindSegment(id)->parent;
  return parent == SegmentId::kNone || shared_.IsDurable(parent) ||
         std::ranges::any_of(written, [&](const Written& entry) { return entry.id == parent; });
}

bool Writer::KeepInRam(Written* written) {
  const std::shared_ptr<PooledBuffer> buffer = std::move(written->buffer);
  buffer->EndCharge();  // it waits no more, whatever becomes of it
  const auto found = shared_.tables.places.find(written->id);
  if (found == shared_.tables.places.end() || !buffer->in_ram_tier()) return false;
  if (written->byte_count() == 0) {
    found->second.pending = nullptr;
    return true;
  }
  return shared_.AdmitToRam(written->id, RamOrigin::kRecorded, std::move(written->payload),
                            buffer->TakeReservation());
}

void Writer::WriteSegment(SegmentId id, const Refusal& refusal, std::vector<Written>* written) {
  std::shared_ptr<PooledBuffer> buffer;
  bool to_disk = shared_.has_disk() && refusal.reason == RefusalReason::kNone;
  {
    MutexLock lock(shared_.mu);
    const auto place = shared_.tables.places.find(id);
    if (place == shared_.tables.places.end()) return;  // removed meanwhile
    buffer = place->second.pending->buffer;
    to_disk = to_disk && HasDurableParent(id, *written) &&
              place->second.byte_count <= shared_.tables.plan.pack_capacity_bytes;
  }
  if (!to_disk && !buffer->in_ram_tier()) {
    buffer->EndCharge();
    Refuse(id,
           refusal.reason == RefusalReason::kNone
               ? Refusal{RefusalReason::kInsufficientSpace, "no room in RAM"}
               : refusal,
           nullptr);
    return;
  }
  const std::span<const std::byte> bytes = buffer->bytes();
  Written entry{.id = id,
                .buffer = buffer,
                .payload = HashedBytes({buffer, bytes, buffer->capacity_bytes()}),
                .extents = {}};
  buffer.reset();
  if (!to_disk) {
    Refuse(id, refusal, &entry);
    return;
  }
  if (!bytes.empty()) {
    Result<ExtentList> extents = Allocate(bytes.size());
    if (!extents) {
      const bool low_space = extents.error().code == ErrorCode::kNoSpace;
      const bool exhausted = extents.error().code == ErrorCode::kResourceExhausted;
      Refuse(id,
             {low_space   ? RefusalReason::kReadOnlyLowSpace
              : exhausted ? RefusalReason::kInsufficientSpace
                          : RefusalReason::kStorageError,
              extents.error().text},
             &entry);
      return;
    }
    if (const Status status = shared_.disk.packs->Write(*extents, bytes); !status) {
      shared_.disk.packs->Free(*extents);
      Refuse(id, {RefusalReason::kStorageError, status.error().text}, &entry);
      return;
    }
    entry.extents = std::move(*extents);
  }
  written->push_back(std::move(entry));
}

void Writer::SetState(TierState state, const std::string& reason) {
  CacheTables& tables = shared_.tables;
  if (tables.tier_state == state && tables.tier_reason == reason) return;
  if (state == TierState::kActive) {
    LogInfo("cache: writing again");
  } else {
    LogWarning("cache: {}: {}; see 'skippy kv-cache status'", ToString(state), reason);
  }
  tables.tier_state = state;
  tables.tier_reason = reason;
}

void Writer::Refuse(SegmentId id, const Refusal& refusal, Written* written) {
  MutexLock lock(shared_.mu);
  CacheTables& tables = shared_.tables;
  const bool kept = written != nullptr && KeepInRam(written);
  if (refusal.reason != RefusalReason::kNone) {
    shared_.CountRefusal(refusal.reason);
  } else if (!kept) {
    shared_.CountRefusal(RefusalReason::kInsufficientSpace);
  }
  if (!kept && tables.places.contains(id)) shared_.RemoveSubtree(id, RemovalCause::kDropped);
  if (refusal.reason == RefusalReason::kReadOnlyLowSpace) {
    SetState(TierState::kReadOnlyLowSpace, "read_only_low_space: " + refusal.text);
  } else if (refusal.reason == RefusalReason::kStorageError) {
    tables.activity.last_error = refusal.text;
    SetState(TierState::kDegraded, "storage_error: " + refusal.text);
  }
}

SegmentRow Writer::MakeRow(const Written& written) {
  const LedgerSegment& segment = *shared_.tables.ledger.FindSegment(written.id);
  return {.id = written.id,
          .domain = segment.domain,
          .parent = segment.parent,
          .kind = segment.kind,
          .first_token = segment.first_token,
          .token_count = segment.token_count,
          .end_hash = shared_.tables.places.at(written.id).end_hash,
          .digest = written.payload.digest(),
          .byte_count = written.byte_count(),
          .extents = written.extents};
}

void Writer::AddRows(const Group& group, std::vector<Written>* written, CatalogBatch* batch) {
  CacheTables& tables = shared_.tables;
  const auto& places = tables.places;
  std::erase_if(*written, [&](const Written& entry) {
    if (places.contains(entry.id)) return false;
    shared_.disk.packs->Free(entry.extents);
    return true;
  });
  std::unordered_set<SegmentId> added;
  std::unordered_set<DomainId> added_domains;
  for (const Written& entry : *written) {
    batch->add_segments.push_back(MakeRow(entry));
    const std::span<const Token> tokens = tables.index.Tokens(entry.id);
    batch->add_segment_tokens.emplace_back(tokens.begin(), tokens.end());
    added.insert(entry.id);
    const DomainId domain_id = batch->add_segments.back().domain;
    const Domain& domain = tables.domains.at(domain_id);
    if (!domain.durable && added_domains.insert(domain_id).second) {
      batch->add_domains.push_back({domain_id, domain.spec});
    }
  }
  for (const ManifestId id : group.manifests) {
    const Ledger::Manifest* manifest = tables.ledger.FindManifest(id);
    if (manifest == nullptr) continue;
    const SegmentId tip = manifest->row.tip;
    if (!shared_.IsDurable(tip) && !added.contains(tip)) continue;
    batch->add_manifests.push_back(manifest->row);
  }
}

void Writer::CommitGroup(const Group& group, std::vector<Written> written) {
  CatalogBatch batch;
  std::vector<RemovedRow> removed;
  {
    MutexLock lock(shared_.mu);
    removed = TakeRemovals(&batch);
    AddRows(group, &written, &batch);
    // A use alone is not worth a commit; it travels with the next one.
    if (!batch.empty()) batch.touches = shared_.tables.ledger.TakeTouches(kBatchTouches);
  }
  if (batch.empty()) return;
  if (const Status committed = Commit(batch, std::move(removed)); !committed) {
    Forget(group, &written, committed.error());
    return;
  }
  std::vector<std::shared_ptr<PendingBytes>> done_with;
  MutexLock lock(shared_.mu);
  Settle(batch, &written, &done_with);
}

void Writer::Settle(const CatalogBatch& batch, std::vector<Written>* written,
                    std::vector<std::shared_ptr<PendingBytes>>* done_with) {
  CacheTables& tables = shared_.tables;
  for (const DomainRow& row : batch.add_domains) tables.domains.at(row.id).durable = true;
  for (Written& entry : *written) {
    auto stored = std::make_shared<StoredExtents>(shared_.disk.packs.get(), entry.extents);
    tables.activity.bytes_written += entry.byte_count();
    const auto place = tables.places.find(entry.id);
    if (place == tables.places.end()) {  // removed during the commit
      const std::uint64_t block_bytes = stored->block_bytes();
      tables.removed_segments.push_back(
          {.id = entry.id, .disk = std::move(stored), .block_bytes = block_bytes});
      continue;
    }
    place->second.disk = std::move(stored);
    place->second.digest = entry.payload.digest();
    tables.payload_bytes += entry.byte_count();
    if (!KeepInRam(&entry)) done_with->push_back(std::exchange(place->second.pending, nullptr));
  }
  for (const ManifestRow& row : batch.add_manifests) {
    if (tables.ledger.MarkDurable(row.id)) {
      ++tables.activity.writes;
    } else {
      tables.removed_manifests.push_back(row.id);
    }
  }
  if (!written->empty()) SetState(TierState::kActive, "");
}

void Writer::Forget(const Group& group, std::vector<Written>* written, const Error& error) {
  // Whether the bytes or rows reached the medium is unknown: their blocks are not used again.
  for (const Written& entry : *written) shared_.disk.packs->Quarantine(entry.extents);
  for (Written& entry : *written) {
    Refuse(entry.id, {RefusalReason::kStorageError, error.text}, &entry);
  }
  MutexLock lock(shared_.mu);
  LedgerRemovals removals;
  for (const ManifestId id : group.manifests) {
    const Ledger::Manifest* manifest = shared_.tables.ledger.FindManifest(id);
    if (manifest == nullptr) continue;
    const auto tip = shared_.tables.places.find(manifest->row.tip);
    const bool only_in_ram = tip != shared_.tables.places.end() && tip->second.in_ram &&
                             tip->second.disk == nullptr;
    if (only_in_ram) continue;  // a prefix of the RAM tier
    shared_.tables.ledger.RemoveManifest(id, &removals);
  }
  shared_.Collect(removals, RemovalCause::kDropped);
  shared_.tables.activity.last_error = error.text;
  SetState(TierState::kDegraded, "storage_error: " + error.text);
}

std::vector<RemovedRow> Writer::TakeRemovals(CatalogBatch* batch) {
  CacheTables& tables = shared_.tables;
  // Manifests first: a crash between two batches leaves no manifest without its segments.
  const std::size_t manifests = std::min(tables.removed_manifests.size(), kBatchRemovals);
  const auto manifests_end =
      tables.removed_manifests.begin() + static_cast<std::ptrdiff_t>(manifests);
  batch->remove_manifests.assign(tables.removed_manifests.begin(), manifests_end);
  tables.removed_manifests.erase(tables.removed_manifests.begin(), manifests_end);
  if (!tables.removed_manifests.empty()) return {};
  const std::size_t segments = std::min(tables.removed_segments.size(), kBatchRemovals);
  const auto segments_end = tables.removed_segments.begin() + static_cast<std::ptrdiff_t>(segments);
  std::vector<RemovedRow> removed(std::make_move_iterator(tables.removed_segments.begin()),
                                  std::make_move_iterator(segments_end));
  tables.removed_segments.erase(tables.removed_segments.begin(), segments_end);
  for (const RemovedRow& row : removed) batch->remove_segments.push_back(row.id);
  return removed;
}

Status Writer::Commit(const CatalogBatch& batch, std::vector<RemovedRow> removed) {
  Status committed;
  for (RemovedRow& row : removed) {
    if (committed) committed = shared_.CompleteRow(&row);
  }
  if (committed) committed = shared_.disk.catalog->Commit(batch);
  const Result<std::uint64_t> catalog_bytes = shared_.disk.catalog->PhysicalBytes();
  if (committed) {
    for (const RemovedRow& row : removed) row.disk->Release();
  }
  MutexLock lock(shared_.mu);
  CacheTables& tables = shared_.tables;
  if (catalog_bytes) tables.catalog_bytes = *catalog_bytes;
  removals_wait_ = !committed;
  if (!committed) {
    tables.removed_manifests.insert(tables.removed_manifests.begin(),
                                    batch.remove_manifests.begin(), batch.remove_manifests.end());
    tables.removed_segments.insert(tables.removed_segments.begin(),
                                   std::make_move_iterator(removed.begin()),
                                   std::make_move_iterator(removed.end()));
  }
  return committed;
}

Status Writer::CommitRemovals() {
  for (;;) {
    CatalogBatch batch;
    std::vector<RemovedRow> removed;
    {
      MutexLock lock(shared_.mu);
      removed = TakeRemovals(&batch);
    }
    if (batch.empty()) return {};
    SKIPPY_RETURN_IF_ERROR(Commit(batch, std::move(removed)));
  }
}

void Writer::CommitTouches() {
  if (!shared_.has_disk()) return;
  for (;;) {
    CatalogBatch batch;
    {
      MutexLock lock(shared_.mu);
      batch.touches = shared_.tables.ledger.TakeTouches(kBatchTouches);
    }
    if (batch.empty()) return;
    if (const Status committed = Commit(batch, {}); !committed) {
      LogWarning("cache: last uses were not saved: {}", committed.error().text);
      return;
    }
  }
}

}  // namespace skippy
