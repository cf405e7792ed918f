#include "cache/offline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "cache/open_close.h"
#include "cache/reconcile.h"
#include "cache/shared_state.h"
#include "cache/writer.h"

namespace skippy {
namespace {

// Of packs that would be made, and none is.
constexpr std::uint64_t kUnusedPackBytes = 64 * kKiB;
// A damaged catalog that is larger is of no use to people either.
constexpr std::uint64_t kLargestKeptCatalogBytes = 64 * kMiB;

class OfflineStore {
 public:
  static Result<std::unique_ptr<OfflineStore>> Open(Env* env, const OfflineOptions& options,
                                                    bool put_damaged_aside);
  ~OfflineStore() = default;

  // Reads the rest of the catalog: tokens. What is not as it was written leaves the tables.
  Status WarmAll();
  StoreReport Describe();
  // Reads everything; with `remove_bad`, what fails is taken out of the tables.
  void CheckPayloads(bool remove_bad, StoreReport* report);
  std::vector<StoreDomain> Domains();
  // Writes what was taken out of the tables to the catalog.
  Status CommitRemovals();

 private:
  struct Item {
    SegmentId id = SegmentId::kNone;
    Place place;
  };

  OfflineStore(Env* env, const OfflineOptions& options)
      : options_(options), shared_(std::make_shared<SharedState>(CacheOptions{}, env)) {}

  Status TakeOver();
  Status OpenAndLoad();
  Status OpenStores(bool put_damaged_aside);
  std::vector<Item> ItemsByPlace();
  void CheckOne(const Item& item, bool remove_bad, StoreReport* report);

  const OfflineOptions options_;
  const std::shared_ptr<SharedState> shared_;
  bool catalog_was_damaged_ = false;
};

void NoteProblem(StoreReport* report, std::string text) {
  if (report->problems.size() < StoreReport::kMaxProblems) {
    report->problems.push_back(std::move(text));
  }
}

std::string NameOf(SegmentId id) {
  return "segment " + std::to_string(static_cast<std::uint64_t>(id));
}

Result<std::unique_ptr<OfflineStore>> OfflineStore::Open(Env* env, const OfflineOptions& options,
                                                         bool put_damaged_aside) {
  std::unique_ptr<OfflineStore> store(new OfflineStore(env, options));
  SKIPPY_RETURN_IF_ERROR(store->TakeOver());
  SKIPPY_RETURN_IF_ERROR(store->OpenStores(put_damaged_aside));
  return store;
}

Status OfflineStore::TakeOver() {
  Env* env = shared_->env;
  const std::string catalog = options_.directory + kCatalogFileName;
  if (!env->Stat(catalog) || !env->Stat(options_.directory + kPacksFolderName)) {
    return MakeError(ErrorCode::kNotFound, "there is no cache in " + options_.directory);
  }
  SKIPPY_ASSIGN_OR_RETURN(shared_->disk.root, PrepareRoot(env, options_.directory));
  auto lock = env->LockFile(shared_->disk.root + kOwnerLockName);
  if (!lock && lock.error().code == ErrorCode::kBusy) {
    return MakeError(ErrorCode::kUnavailable, "a server is using " + shared_->disk.root);
  }
  if (!lock) return lock.error();
  shared_->disk.lock = std::move(*lock);
  return {};
}

Status OfflineStore::OpenAndLoad() {
  SharedState& shared = *shared_;
  SKIPPY_ASSIGN_OR_RETURN(shared.disk.catalog,
                          Catalog::Open(shared.env, {.path = shared.disk.root + kCatalogFileName}));
  SKIPPY_ASSIGN_OR_RETURN(
      shared.disk.packs,
      PackStore::Open(shared.env, {.directory = shared.disk.root + kPacksFolderName,
                                   .pack_bytes = kUnusedPackBytes,
                                   .direct_io = options_.direct_io}));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t catalog_bytes, shared.disk.catalog->PhysicalBytes());
  MutexLock lock(shared.mu);
  shared.tables.catalog_bytes = catalog_bytes;
  return Reconcile(shared);
}

Status OfflineStore::OpenStores(bool put_damaged_aside) {
  SharedState& shared = *shared_;
  const Status opened = OpenAndLoad();
  if (opened || opened.error().code != ErrorCode::kCorrupt || !put_damaged_aside) return opened;
  catalog_was_damaged_ = true;
  shared.disk.catalog.reset();
  shared.disk.packs.reset();
  SKIPPY_RETURN_IF_ERROR(
      PutAsideCatalog(shared.env, shared.disk.root, /*keep_bytes=*/kLargestKeptCatalogBytes));
  {
    MutexLock lock(shared.mu);
    ForgetCatalog(shared);
  }
  return OpenAndLoad();
}

Status OfflineStore::WarmAll() {
  std::vector<SegmentId> ids;
  {
    MutexLock lock(shared_->mu);
    shared_->tables.ledger.VisitSegments(
        [&](SegmentId id, const LedgerSegment&) { ids.push_back(id); });
  }
  std::ranges::sort(ids);
  for (const SegmentId id : ids) {
    if (shared_->WarmSegment(id)) continue;
    MutexLock lock(shared_->mu);
    return MakeError(ErrorCode::kIo, shared_->tables.activity.last_error);
  }
  return {};
}

StoreReport OfflineStore::Describe() {
  StoreReport report;
  report.directory = shared_->disk.root;
  const PackUsage usage = shared_->disk.packs->Usage();
  report.packs = usage.pack_count;
  report.block_bytes = usage.live_bytes;
  report.foreign_files = shared_->disk.packs->foreign_files();
  report.catalog_was_damaged = catalog_was_damaged_;
  if (catalog_was_damaged_) NoteProblem(&report, "catalog.db was not readable as a database");
  SharedState& shared = *shared_;
  MutexLock lock(shared.mu);
  CacheTables& tables = shared.tables;
  report.physical_bytes = usage.physical_bytes + tables.catalog_bytes;
  report.manifests = tables.ledger.manifest_count();
  report.segments = tables.ledger.segment_count();
  report.payload_bytes = tables.payload_bytes;
  report.bad_manifests =
      tables.reconciliation.quarantined_manifests + tables.reconciliation.removed_prefix_links;
  report.orphan_bytes = tables.reconciliation.removed_orphan_bytes;
  report.bad_rows = tables.activity.corrupt_entries;
  for (const RemovedRow& row : tables.removed_segments) {
    NoteProblem(&report, NameOf(row.id) + ": its row is damaged, leads nowhere or is not needed");
  }
  return report;
}

// In the order in which they lie on the disk.
std::vector<OfflineStore::Item> OfflineStore::ItemsByPlace() {
  std::vector<Item> items;
  {
    MutexLock lock(shared_->mu);
    for (const auto& [id, place] : shared_->tables.places) items.push_back({id, place});
  }
  std::ranges::sort(items, [](const Item& a, const Item& b) {
    return a.place.disk->extents() < b.place.disk->extents();
  });
  return items;
}

void OfflineStore::CheckOne(const Item& item, bool remove_bad, StoreReport* report) {
  const auto buffer = shared_->pool->Acquire(item.place.byte_count);
  Status read;
  if (buffer == nullptr) {
    read = MakeError(ErrorCode::kResourceExhausted, "out of memory");
  } else if (item.place.byte_count > 0) {
    read = shared_->disk.packs->Read(item.place.disk->extents(), buffer->blocks());
  }
  if (!read && read.error().code != ErrorCode::kCorrupt) {
    ++report->unread_payloads;
    NoteProblem(report, NameOf(item.id) + ": " + read.error().text);
    return;
  }
  if (read && HashBytes<SegmentDigest>(buffer->bytes()) == item.place.digest) return;
  ++report->bad_payloads;
  NoteProblem(report, NameOf(item.id) + ": its bytes are not those that were recorded");
  if (!remove_bad) return;
  MutexLock lock(shared_->mu);
  if (shared_->tables.places.contains(item.id))
    shared_->RemoveSubtree(item.id, RemovalCause::kDamage);
}

void OfflineStore::CheckPayloads(bool remove_bad, StoreReport* report) {
  const std::uint64_t total_bytes = report->payload_bytes;
  std::uint64_t done_bytes = 0;
  for (const Item& item : ItemsByPlace()) {
    CheckOne(item, remove_bad, report);
    done_bytes += item.place.byte_count;
    if (options_.progress) options_.progress(done_bytes, total_bytes);
  }
}

std::vector<StoreDomain> OfflineStore::Domains() {
  std::map<DomainId, StoreDomain> domains;
  SharedState& shared = *shared_;
  MutexLock lock(shared.mu);
  CacheTables& tables = shared.tables;
  for (const auto& [id, domain] : tables.domains) {
    domains[id] = {.model = domain.spec.model,
                   .state = domain.spec.state,
                   .model_name = domain.spec.model_name,
                   .name_space = domain.spec.name_space};
  }
  tables.ledger.VisitSegments([&](SegmentId, const LedgerSegment& segment) {
    StoreDomain& domain = domains.at(segment.domain);
    ++(segment.kind == SegmentKind::kCheckpoint ? domain.checkpoints : domain.segments);
    domain.payload_bytes += segment.byte_count;
  });
  for (const auto& manifest :
       tables.ledger.ListManifests(ManifestId::kNone, tables.ledger.manifest_count())) {
    StoreDomain& domain = domains.at(manifest.row.domain);
    ++domain.manifests;
    domain.longest_tokens = std::max(domain.longest_tokens, manifest.row.token_count);
  }
  std::vector<StoreDomain> out;
  for (auto& [id, domain] : domains) out.push_back(std::move(domain));
  std::ranges::sort(out, [](const StoreDomain& a, const StoreDomain& b) {
    return std::tie(a.model, a.state, a.name_space) < std::tie(b.model, b.state, b.name_space);
  });
  return out;
}

Status OfflineStore::CommitRemovals() {
  {
    Writer writer(shared_.get());
    writer.Start();
    writer.Stop();
  }
  MutexLock lock(shared_->mu);
  const bool all = shared_->tables.removed_segments.empty() &&
                   shared_->tables.removed_manifests.empty() && shared_->tables.queue.empty();
  if (!all) return MakeError(ErrorCode::kIo, "the catalog did not take the removals");
  return {};
}

}  // namespace

Result<StoreReport> VerifyStore(Env* env, const OfflineOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(const auto store, OfflineStore::Open(env, options, false));
  SKIPPY_RETURN_IF_ERROR(store->WarmAll());
  StoreReport report = store->Describe();
  store->CheckPayloads(/*remove_bad=*/false, &report);
  return report;
}

Result<std::vector<StoreDomain>> InspectStore(Env* env, const OfflineOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(const auto store, OfflineStore::Open(env, options, false));
  return store->Domains();
}

Result<StoreReport> RepairStore(Env* env, const OfflineOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(const auto store, OfflineStore::Open(env, options, true));
  SKIPPY_RETURN_IF_ERROR(store->WarmAll());
  StoreReport report = store->Describe();
  store->CheckPayloads(/*remove_bad=*/true, &report);
  SKIPPY_RETURN_IF_ERROR(store->CommitRemovals());
  const StoreReport left = store->Describe();
  report.manifests = left.manifests;
  report.segments = left.segments;
  report.payload_bytes = left.payload_bytes;
  report.block_bytes = left.block_bytes;
  report.physical_bytes = left.physical_bytes;
  return report;
}

}  // namespace skippy
