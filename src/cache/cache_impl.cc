#include "cache/cache_impl.h"

#include <utility>

#include "base/log.h"
#include "cache/open_close.h"
#include "cache/recording.h"

namespace skippy {
namespace {

Status CheckOptions(const CacheOptions& options) {
  if (options.read_threads < 1) {
    return MakeError(ErrorCode::kInvalidArgument, "read_threads must be at least 1");
  }
  if (options.read_ahead_segments < 1) {
    return MakeError(ErrorCode::kInvalidArgument, "read_ahead_segments must be at least 1");
  }
  const DiskOptions& disk = options.disk;
  if (disk.mode == DiskMode::kOff) return {};
  if (disk.directory.empty() || disk.directory.front() != '/') {
    return MakeError(ErrorCode::kInvalidArgument,
                     "disk.directory must be absolute, not '" + disk.directory + "'");
  }
  if (disk.mode == DiskMode::kFixed && disk.budget_bytes == 0) {
    return MakeError(ErrorCode::kInvalidArgument, "disk.budget_bytes must be above 0");
  }
  if (disk.pack_bytes % kBlockBytes != 0 || (disk.pack_bytes != 0 && disk.pack_bytes < 64 * kKiB)) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "disk.pack_bytes must be a multiple of 4096 and at least 65536");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Cache>> Cache::Open(const CacheOptions& options, Env* env) {
  SKIPPY_RETURN_IF_ERROR(CheckOptions(options));
  auto cache = std::make_unique<CacheImpl>(options, env);
  cache->Start();
  return cache;
}

CacheImpl::CacheImpl(const CacheOptions& options, Env* env)
    : shared_(std::make_shared<SharedState>(options, env)),
      read_threads_(std::make_shared<ReadThreads>(
          options.disk.mode == DiskMode::kOff ? 0 : options.read_threads)) {}

CacheImpl::~CacheImpl() {
  if (const Status closed = Close(); !closed) {
    LogWarning("cache: closing failed: {}", closed.error().text);
  }
}

void CacheImpl::Start() {
  const bool has_disk = shared_->options.disk.mode != DiskMode::kOff && OpenDiskTier(*shared_);
  if (!shared_->has_tier()) return;
  writer_ = std::make_unique<Writer>(shared_.get());
  writer_->Start();
  if (has_disk) writer_->RunBetweenGroups([this] { writer_->EnforceBudget(); });
}

Result<DomainId> CacheImpl::OpenDomain(const DomainSpec& spec) {
  constexpr std::size_t kMaxNameSpaceBytes = 256;
  if (spec.name_space.size() > kMaxNameSpaceBytes) {
    return MakeError(ErrorCode::kInvalidArgument, "name_space is longer than 256 bytes");
  }
  MutexLock lock(shared_->mu);
  CacheTables& tables = shared_->tables;
  if (!shared_->has_tier() || tables.closing) {
    return MakeError(ErrorCode::kUnavailable, "no cache tier is on");
  }
  for (const auto& [id, domain] : tables.domains) {
    if (domain.spec.model == spec.model && domain.spec.state == spec.state &&
        domain.spec.name_space == spec.name_space) {
      return id;
    }
  }
  const auto id = static_cast<DomainId>(tables.next_domain++);
  tables.domains.emplace(id, Domain{.spec = spec, .durable = false});
  return id;
}

std::unique_ptr<Recording> CacheImpl::StartRecording(DomainId domain, ResumeRule rule) {
  {
    MutexLock lock(shared_->mu);
    if (!shared_->has_tier() || shared_->tables.closing ||
        !shared_->tables.domains.contains(domain)) {
      return MakeClosedRecording();
    }
  }
  return MakeRecording(shared_, domain, rule);
}

std::unique_ptr<Buffer> CacheImpl::AcquireBuffer(std::uint64_t byte_count) {
  std::unique_ptr<PooledBuffer> buffer;
  MutexLock lock(shared_->mu);
  RefusalReason refusal = shared_->Admits(byte_count);
  if (refusal == RefusalReason::kNone && !shared_->pool->MayCharge(byte_count)) {
    refusal = RefusalReason::kQueueFull;
  }
  if (refusal == RefusalReason::kNone) {
    buffer = shared_->AcquireInRam(byte_count);
    if (buffer == nullptr && shared_->has_disk())
      buffer = shared_->pool->AcquireCharged(byte_count);
    if (buffer != nullptr) return buffer;
    refusal = shared_->has_disk() ? RefusalReason::kQueueFull : RefusalReason::kInsufficientSpace;
  }
  if (refusal != RefusalReason::kDisabled) shared_->CountRefusal(refusal);
  return nullptr;
}

Status CacheImpl::Flush() {
  MutexLock lock(shared_->mu);
  CacheTables& tables = shared_->tables;
  if (!shared_->has_tier()) return {};
  const std::uint64_t target = tables.queued_items;
  while (tables.settled_items < target && !tables.writer_stopped)
    shared_->settled.Wait(shared_->mu);
  return {};
}

Status CacheImpl::Close() {
  MutexLock lock(close_mu_);
  if (std::exchange(closed_, true)) return {};
  if (writer_ != nullptr) writer_->Stop();
  read_threads_->Stop();
  {
    MutexLock memory_lock(shared_->mu);
    shared_->tables.closing = true;
  }
  if (!shared_->has_disk()) return {};
  const Status closed = shared_->disk.catalog->Close();
  shared_->disk.lock.reset();
  return closed;
}

}  // namespace skippy
