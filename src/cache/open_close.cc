#include "cache/open_close.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cache/reconcile.h"

namespace skippy {
namespace {

constexpr std::uint32_t kOwnerOnly = 0700;
// One damaged catalog is kept for people to look at.
constexpr char kDamagedName[] = "/catalog.db.corrupt-1";

Error Unusable(const std::string& text, int os_errno = 0) {
  return MakeError(ErrorCode::kUnavailable, text, os_errno);
}

Result<std::vector<std::string>> Components(const std::string& directory) {
  if (directory.empty() || directory.front() != '/') {
    return MakeError(ErrorCode::kInvalidArgument,
                     "disk directory must be absolute: '" + directory + "'");
  }
  std::vector<std::string> out;
  std::string part;
  for (const char c : directory + "/") {
    if (c != '/') {
      part.push_back(c);
      continue;
    }
    if (part == "..") {
      return MakeError(ErrorCode::kInvalidArgument,
                       "disk directory must not contain '..': '" + directory + "'");
    }
    if (!part.empty() && part != ".") out.push_back(part);
    part.clear();
  }
  return out;
}

// A link that the system itself made (owned by root) above the cache root is followed.
Status StepInto(Env* env, const std::string& parent, const std::string& path, bool is_last) {
  const Result<FileInfo> info = env->Stat(path);
  if (!info) {
    if (info.error().code != ErrorCode::kNotFound) return info.error();
    SKIPPY_RETURN_IF_ERROR(env->CreateDirectory(path));
    return env->SyncDirectory(parent.empty() ? "/" : parent);
  }
  if (info->kind == FileKind::kSymlink && (is_last || info->owner != 0)) {
    return Unusable("symbolic link in the path of the disk directory: " + path);
  }
  if (info->kind == FileKind::kRegular || info->kind == FileKind::kOther) {
    return Unusable("not a directory: " + path);
  }
  return {};
}

// Restricting a directory that is plainly something else would harm its owner.
Status RestrictToOwner(Env* env, const std::string& root) {
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, env->Stat(root));
  if (info.mode == kOwnerOnly) return {};
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->ListDirectory(root));
  const bool is_ours = std::ranges::find(names, kOwnerLockName + 1) != names.end();
  if (!names.empty() && !is_ours) {
    return Unusable("directory is not empty, not a cache and not private: " + root);
  }
  SKIPPY_RETURN_IF_ERROR(env->SetMode(root, kOwnerOnly));
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo after, env->Stat(root));
  if (after.mode != kOwnerOnly) return Unusable("directory cannot be made private: " + root);
  return {};
}

Status RefuseLinksInside(Env* env, const std::string& root) {
  for (const char* name : {kOwnerLockName, kCatalogFileName, kPacksFolderName}) {
    const Result<FileInfo> info = env->Stat(root + name);
    if (info && info->kind == FileKind::kSymlink) {
      return Unusable("symbolic link inside the disk directory: " + root + name);
    }
  }
  return {};
}

std::uint64_t AllocatedBytes(Env* env, const std::string& path) {
  const Result<FileInfo> info = env->Stat(path);
  return info ? info->allocated_bytes : 0;
}

std::uint64_t CatalogFileBytes(Env* env, const std::string& root) {
  return AllocatedBytes(env, root + kCatalogFileName) +
         AllocatedBytes(env, root + kCatalogFileName + "-wal");
}

Result<std::uint64_t> ManagedBytes(Env* env, const std::string& root) {
  std::uint64_t total = CatalogFileBytes(env, root) + AllocatedBytes(env, root + kDamagedName);
  const auto names = env->ListDirectory(root + kPacksFolderName);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    total += AllocatedBytes(env, root + kPacksFolderName + "/" + name);
  }
  return total;
}

Result<std::uint64_t> ResolveBudget(const SharedState& shared, const std::string& root) {
  const DiskOptions& options = shared.options.disk;
  if (options.mode == DiskMode::kFixed) return options.budget_bytes;
  SKIPPY_ASSIGN_OR_RETURN(const SpaceInfo space, shared.env->Space(root));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t managed, ManagedBytes(shared.env, root));
  return AutoBudgetBytes(space.available_bytes, managed, options.minimum_free_bytes);
}

// The budget of everything but a damaged catalog that lies aside.
Result<BudgetPlan> PlanFor(const SharedState& shared, const std::string& root,
                           std::uint64_t budget_bytes) {
  const std::uint64_t leftover = AllocatedBytes(shared.env, root + kDamagedName);
  SKIPPY_ASSIGN_OR_RETURN(
      BudgetPlan plan,
      PlanBudget({.budget_bytes = budget_bytes > leftover ? budget_bytes - leftover : 0,
                  .pack_bytes = shared.options.disk.pack_bytes,
                  .catalog_bytes = CatalogFileBytes(shared.env, root)}));
  plan.budget_bytes = budget_bytes;
  return plan;
}

Status OpenAndLoad(SharedState& shared, const std::string& root, BudgetPlan plan) {
  SKIPPY_ASSIGN_OR_RETURN(shared.disk.catalog,
                          Catalog::Open(shared.env, {.path = root + kCatalogFileName,
                                                     .wal_limit_bytes = plan.wal_limit_bytes}));
  SKIPPY_ASSIGN_OR_RETURN(plan, PlanFor(shared, root, plan.budget_bytes));
  SKIPPY_ASSIGN_OR_RETURN(
      shared.disk.packs,
      PackStore::Open(shared.env, {.directory = root + kPacksFolderName,
                                   .pack_bytes = plan.pack_bytes,
                                   .capacity_bytes = plan.pack_capacity_bytes,
                                   .minimum_free_bytes = shared.options.disk.minimum_free_bytes,
                                   .direct_io = shared.options.disk.direct_io}));
  for (const std::string& name : shared.disk.packs->foreign_files()) {
    LogWarning("cache: {} is not a pack of this cache; left alone", name);
  }
  SKIPPY_RETURN_IF_ERROR(shared.env->SyncDirectory(root));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t catalog_bytes, shared.disk.catalog->PhysicalBytes());
  MutexLock lock(shared.mu);
  CacheTables& tables = shared.tables;
  tables.plan = plan;
  tables.minimum_free_bytes = shared.options.disk.minimum_free_bytes;
  tables.catalog_bytes = catalog_bytes;
  tables.leftover_bytes = AllocatedBytes(shared.env, root + kDamagedName);
  SKIPPY_RETURN_IF_ERROR(Reconcile(shared));
  tables.tier_state = TierState::kActive;
  return {};
}

// A damaged catalog means a cold start, not a tier that is off.
Status OpenStores(SharedState& shared, const std::string& root, const BudgetPlan& plan) {
  const Status opened = OpenAndLoad(shared, root, plan);
  if (opened || opened.error().code != ErrorCode::kCorrupt) return opened;
  LogWarning("cache: catalog is damaged, starting cold: {}", opened.error().text);
  shared.disk.catalog.reset();
  shared.disk.packs.reset();
  SKIPPY_RETURN_IF_ERROR(PutAsideCatalog(shared.env, root, plan.catalog_allowance_bytes / 4));
  {
    MutexLock lock(shared.mu);
    ForgetCatalog(shared);
    shared.tables.activity.last_error = "catalog was damaged, started cold: " + opened.error().text;
  }
  return OpenAndLoad(shared, root, plan);
}

Status OpenRoot(SharedState& shared) {
  Env* env = shared.env;
  SKIPPY_ASSIGN_OR_RETURN(const std::string root, PrepareRoot(env, shared.options.disk.directory));
  SKIPPY_RETURN_IF_ERROR(RefuseLinksInside(env, root));
  auto lock = env->LockFile(root + kOwnerLockName);
  if (!lock) {
    if (lock.error().code == ErrorCode::kBusy) return Unusable("owned by another process");
    return lock.error();
  }
  shared.disk.root = root;
  shared.disk.lock = std::move(*lock);
  const Status made = env->CreateDirectory(root + kPacksFolderName);
  if (!made && made.error().code != ErrorCode::kAlreadyExists) return made;
  SKIPPY_RETURN_IF_ERROR(env->SetMode(root + kPacksFolderName, kOwnerOnly));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t budget_bytes, ResolveBudget(shared, root));
  SKIPPY_ASSIGN_OR_RETURN(const BudgetPlan plan, PlanFor(shared, root, budget_bytes));
  return OpenStores(shared, root, plan);
}

}  // namespace

Result<std::string> PrepareRoot(Env* env, const std::string& directory) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> components, Components(directory));
  if (components.empty()) return Unusable("the file system's root is not a disk directory");
  std::string path;
  for (std::size_t i = 0; i < components.size(); ++i) {
    const std::string parent = path;
    path += "/" + components[i];
    SKIPPY_RETURN_IF_ERROR(StepInto(env, parent, path, i + 1 == components.size()));
  }
  SKIPPY_ASSIGN_OR_RETURN(const std::string root, env->Canonicalize(path));
  SKIPPY_ASSIGN_OR_RETURN(const FilesystemKind kind, env->Filesystem(root));
  if (kind == FilesystemKind::kNetwork) return Unusable("on a network file system: " + root);
  SKIPPY_RETURN_IF_ERROR(RestrictToOwner(env, root));
  return root;
}

Status PutAsideCatalog(Env* env, const std::string& root, std::uint64_t keep_bytes) {
  const std::string catalog = root + kCatalogFileName;
  for (const char* suffix : {"-wal", "-shm"}) {
    if (!env->Stat(catalog + suffix)) continue;
    SKIPPY_RETURN_IF_ERROR(env->RemoveFile(catalog + suffix));
  }
  const bool keep =
      AllocatedBytes(env, catalog) <= keep_bytes && !env->Stat(root + kDamagedName).has_value();
  SKIPPY_RETURN_IF_ERROR(keep ? env->Rename(catalog, root + kDamagedName)
                              : env->RemoveFile(catalog));
  return env->SyncDirectory(root);
}

Status OpenDiskTier(SharedState& shared) {
  const Status opened = OpenRoot(shared);
  if (opened) return {};
  {
    MutexLock lock(shared.mu);
    ForgetCatalog(shared);  // its removals hold extents of the packs
  }
  shared.disk = {};
  const std::string& text = opened.error().text;
  const bool named = text.rfind("budget_below_entry_floor", 0) == 0;
  const std::string reason = named ? text : "storage_unavailable: " + text;
  LogWarning("cache: disk tier is degraded: {}", reason);
  MutexLock lock(shared.mu);
  shared.tables.tier_state = TierState::kDegraded;
  shared.tables.tier_reason = reason;
  return opened;
}

}  // namespace skippy
