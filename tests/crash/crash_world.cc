#include "crash/crash_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "cache/cache_test_util.h"
#include "cache/offline.h"

namespace skippy {
namespace {

constexpr char kRoot[] = "/cache/root";
constexpr std::uint64_t kPackBytes = 256 * kKiB;
constexpr std::uint64_t kFirstBudgetBytes = 6 * kMiB;
constexpr TokenCount kCheckpointTokens = 3;

bool IsSync(FileOpKind kind) {
  return kind == FileOpKind::kSync || kind == FileOpKind::kSyncDirectory;
}

// State that holds at one position: any function of the path up to it.
std::vector<std::byte> CheckpointOf(std::span<const Token> path, TokenCount position) {
  auto bytes = RowsOf(path, position - kCheckpointTokens, position);
  for (std::byte& byte : bytes) byte ^= std::byte{0x5a};
  return bytes;
}

std::uint64_t PhysicalBytes(Env* env) {
  std::uint64_t total = 0;
  for (const std::string& directory : {std::string(kRoot), std::string(kRoot) + "/packs"}) {
    const auto names = env->ListDirectory(directory);
    if (!names) continue;
    for (const std::string& name : *names) {
      const auto info = env->Stat(directory + "/" + name);
      if (info && info->kind == FileKind::kRegular) total += info->allocated_bytes;
    }
  }
  return total;
}

std::uint64_t PackCount(Env* env) {
  const auto names = env->ListDirectory(std::string(kRoot) + "/packs");
  return names ? names->size() : 0;
}

}  // namespace

CrashWorld::CrashWorld(const CrashEffort& effort, std::uint64_t seed)
    : effort_(effort),
      seed_(seed),
      env_(std::make_unique<FaultEnv>()),
      budget_bytes_(kFirstBudgetBytes) {
  env_->CreateDirectories("/cache");
  EXPECT_TRUE(env_->SyncDirectory("/"));
  env_->SetHook([this](const FileOp& op) { BeforeOperation(op); });
}

CrashWorld::~CrashWorld() {
  live_ = nullptr;
  cache_.reset();
}

CacheOptions CrashWorld::OptionsFor(std::uint64_t budget_bytes) const {
  CacheOptions options;
  options.disk = {.mode = DiskMode::kFixed,
                  .directory = kRoot,
                  .budget_bytes = budget_bytes,
                  .minimum_free_bytes = 0,
                  .pack_bytes = kPackBytes};
  options.read_threads = 1;
  return options;
}

DomainId CrashWorld::DomainOf(Cache& cache, const KnownPath& path) {
  return cache.OpenDomain(path.spec).value_or(DomainId::kNone);
}

std::size_t CrashWorld::AddPath(const DomainSpec& spec, ResumeRule rule,
                                std::vector<Token> tokens) {
  KnownPath path{.spec = spec, .rule = rule, .tokens = std::move(tokens)};
  path.rows = RowsOf(path.tokens, 0, static_cast<TokenCount>(path.tokens.size()));
  paths_.push_back(std::move(path));
  return paths_.size() - 1;
}

TokenCount CrashWorld::Found(std::size_t index) {
  const KnownPath& path = paths_[index];
  cache_->WarmPath(DomainOf(*cache_, path), path.tokens, path.rule);
  return cache_->Peek(DomainOf(*cache_, path), path.tokens,
                      static_cast<TokenCount>(path.tokens.size()), path.rule);
}

// ---- the script ---------------------------------------------------------------------------------

// What is gone from memory now need not be there after a crash.
void CrashWorld::BeginStep(const std::string& name) {
  const std::vector<Expected> expected = ExpectedNow();
  MutexLock lock(mu_);
  step_ = name;
  for (std::size_t i = 0; i < paths_.size(); ++i) paths_[i].kept = expected[i].tokens;
}

void CrashWorld::EndStep() {
  ASSERT_TRUE(cache_->Flush());
  const CacheStatus status = cache_->GetStatus();
  ASSERT_EQ(status.disk_state, TierState::kActive) << status.disk_reason;
  ASSERT_EQ(status.activity.records_dropped, 0U) << ToString(status.activity.last_refusal);
  std::vector<TokenCount> found;
  for (std::size_t i = 0; i < paths_.size(); ++i) found.push_back(Found(i));
  MutexLock lock(mu_);
  for (std::size_t i = 0; i < paths_.size(); ++i) paths_[i].kept = found[i];
}

void CrashWorld::Open() {
  {
    MutexLock lock(mu_);
    step_ = "open";
  }
  auto opened = Cache::Open(OptionsFor(budget_bytes_), env_.get());
  ASSERT_TRUE(opened) << opened.error().text;
  cache_ = std::move(*opened);
  live_ = cache_.get();
  EndStep();
}

void CrashWorld::CloseCleanly() {
  BeginStep("close");
  live_ = nullptr;
  EXPECT_TRUE(cache_->Close());
  cache_.reset();
}

void CrashWorld::RecordPath(std::size_t index, TokenCount token_count) {
  BeginStep("record path " + std::to_string(index) + " to " + std::to_string(token_count));
  KnownPath& path = paths_[index];
  const std::span<const Token> head(path.tokens.data(), static_cast<std::size_t>(token_count));
  {
    auto recording = cache_->StartRecording(DomainOf(*cache_, path), path.rule);
    EXPECT_EQ(RecordInto(*cache_, *recording, head), RefusalReason::kNone);
    recording->Publish(head, token_count);
  }
  EndStep();
}

void CrashWorld::RecordCheckpoint(std::size_t index, TokenCount position) {
  BeginStep("checkpoint of path " + std::to_string(index) + " at " + std::to_string(position));
  KnownPath& path = paths_[index];
  const std::span<const Token> head(path.tokens.data(), static_cast<std::size_t>(position));
  {
    auto recording = cache_->StartRecording(DomainOf(*cache_, path), path.rule);
    EXPECT_EQ(RecordInto(*cache_, *recording, head), RefusalReason::kNone);
    if (recording->WantsCheckpoint(head, position)) {
      const auto bytes = CheckpointOf(head, position);
      auto buffer = cache_->AcquireBuffer(bytes.size());
      std::memcpy(buffer->bytes().data(), bytes.data(), bytes.size());
      EXPECT_EQ(recording->AppendCheckpoint(head, position, std::move(buffer)),
                RefusalReason::kNone);
    }
  }
  EndStep();
}

void CrashWorld::Touch(std::size_t index) {
  BeginStep("touch path " + std::to_string(index));
  CheckPath(*cache_, paths_[index], {});
  EndStep();
}

void CrashWorld::Prune(std::uint64_t target_bytes) {
  BeginStep("prune to " + std::to_string(target_bytes));
  EXPECT_TRUE(cache_->Prune(target_bytes, std::nullopt));
  EndStep();
}

void CrashWorld::PruneWhileTheCatalogFails(std::uint64_t target_bytes) {
  BeginStep("prune to " + std::to_string(target_bytes) + " while the catalog fails");
  const std::uint64_t evicted = cache_->GetStatus().disk.evicted_manifests;
  env_->Inject({.kind = FileOpKind::kWrite, .repeat = Fault::kForever, .path_contains = "catalog"});
  EXPECT_TRUE(cache_->Prune(target_bytes, std::nullopt));
  env_->ClearFaults();
  EXPECT_GT(cache_->GetStatus().disk.evicted_manifests, evicted);
  EndStep();
}

void CrashWorld::ClearModel(std::uint8_t model) {
  BeginStep("clear model " + std::to_string(model));
  EXPECT_TRUE(cache_->Clear(SpecOf(model, 1, "").model));
  EndStep();
}

void CrashWorld::Resize(std::uint64_t budget_bytes) {
  BeginStep("resize to " + std::to_string(budget_bytes));
  budget_bytes_ = std::max(budget_bytes_.load(), budget_bytes);
  EXPECT_TRUE(cache_->SetDiskLimits(budget_bytes, 0));
  budget_bytes_ = budget_bytes;
  EXPECT_LE(PhysicalBytes(env_.get()), budget_bytes);
  EndStep();
}

void CrashWorld::Damage(std::size_t index, TokenCount position) {
  BeginStep("damage path " + std::to_string(index) + " at " + std::to_string(position));
  KnownPath& path = paths_[index];
  {
    MutexLock lock(mu_);
    path.damaged = true;
  }
  const auto row = std::span(path.rows).subspan(static_cast<std::size_t>(position) * kTestRowBytes,
                                                kTestRowBytes);
  bool flipped = false;
  const std::string packs = std::string(kRoot) + "/packs";
  const auto names = env_->ListDirectory(packs);
  ASSERT_TRUE(names);
  for (const std::string& name : *names) {
    auto file = env_->OpenFile(packs + "/" + name, {.writable = true});
    ASSERT_TRUE(file);
    std::vector<std::byte> bytes((*file)->FileBytes().value());
    ASSERT_TRUE((*file)->ReadAt(0, bytes));
    // Every copy: an older one may lie in blocks that are free by now.
    for (auto at = bytes.begin();;) {
      at = std::search(at, bytes.end(), row.begin(), row.end());
      if (at == bytes.end()) break;
      const std::byte other = *at ^ std::byte{4};
      const auto offset = static_cast<std::uint64_t>(at - bytes.begin());
      ASSERT_TRUE((*file)->WriteAt(offset, {&other, 1}));
      flipped = true;
      ++at;
    }
  }
  ASSERT_TRUE(flipped);
  CheckPath(*cache_, path, {.tokens = 0, .may_fail = true});
  EXPECT_LE(Found(index), position);
  EndStep();
}

// ---- the checks ---------------------------------------------------------------------------------

std::vector<CrashWorld::Expected> CrashWorld::ExpectedNow() {
  std::vector<Expected> out;
  {
    MutexLock lock(mu_);
    for (const KnownPath& path : paths_) out.push_back({path.kept, path.damaged});
  }
  Cache* const cache = live_;
  if (cache == nullptr) return out;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const KnownPath& path = paths_[i];
    if (out[i].tokens == 0) continue;
    out[i].tokens = std::min(out[i].tokens,
                             cache->Peek(DomainOf(*cache, path), path.tokens,
                                         static_cast<TokenCount>(path.tokens.size()), path.rule));
  }
  return out;
}

void CrashWorld::BeforeOperation(const FileOp& op) {
  if (op.kind == FileOpKind::kRead || testing::Test::HasFailure()) return;
  MutexLock lock(check_mu_);
  CheckPoint(synced_since_.exchange(IsSync(op.kind)));
}

void CrashWorld::CheckPoint(bool after_sync) {
  std::string step;
  {
    MutexLock lock(mu_);
    step = step_;
  }
  const std::uint64_t point = ++counts_.points;
  SCOPED_TRACE("crash point " + std::to_string(point) + " in: " + step);
  const std::vector<Expected> expected = ExpectedNow();
  EXPECT_LE(PhysicalBytes(env_.get()), budget_bytes_);
  std::vector<CrashPolicy> policies;
  if (effort_.every_policy) {
    policies = {CrashPolicy::kApplyAll, CrashPolicy::kTearLast};
    // Nothing became durable since the last point: the same image.
    if (after_sync) policies.push_back(CrashPolicy::kDropAll);
  } else {
    constexpr CrashPolicy kTurns[] = {CrashPolicy::kApplyAll, CrashPolicy::kDropAll,
                                      CrashPolicy::kTearLast};
    policies = {kTurns[point % std::size(kTurns)]};
  }
  for (const CrashPolicy policy : policies) CheckImage(policy, seed_ + point, expected);
  for (int draw = 0; draw < effort_.random_draws; ++draw) {
    CheckImage(CrashPolicy::kRandom, seed_ + point * 1000 + static_cast<std::uint64_t>(draw),
               expected);
  }
}

void CrashWorld::CheckImage(CrashPolicy policy, std::uint64_t seed,
                            const std::vector<Expected>& expected) {
  SCOPED_TRACE("policy " + std::to_string(static_cast<int>(policy)) + ", seed " +
               std::to_string(seed));
  const auto image = env_->AfterCrash(policy, seed);
  EXPECT_LE(PhysicalBytes(image.get()), budget_bytes_);
  auto opened = Cache::Open(OptionsFor(budget_bytes_), image.get());
  ASSERT_TRUE(opened) << opened.error().text;
  Cache& cache = **opened;
  const CacheStatus status = cache.GetStatus();
  ASSERT_EQ(status.disk_state, TierState::kActive) << status.disk_reason;
  EXPECT_EQ(status.activity.last_error, "");
  EXPECT_EQ(status.reconciliation.quarantined_manifests, 0U);
  counts_.repaired_images += status.reconciliation.removed_orphan_bytes > 0;
  CheckPaths(cache, expected);
  const bool may_be_damaged = std::ranges::any_of(expected, &Expected::may_fail);
  const bool empties = ++counts_.images % 4 == 0;
  if (empties) CheckNothingLeaks(image.get(), cache);
  EXPECT_TRUE(cache.Close());
  EXPECT_LE(PhysicalBytes(image.get()), budget_bytes_);
  opened->reset();
  if (!empties && seed % 2 == 0) CheckStore(image.get(), may_be_damaged);
}

void CrashWorld::CheckPaths(Cache& cache, const std::vector<Expected>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("path " + std::to_string(i));
    CheckPath(cache, paths_[i], expected[i]);
  }
}

// Restores all that is found, and compares every byte.
void CrashWorld::CheckPath(Cache& cache, const KnownPath& path, const Expected& expected) {
  const auto limit = static_cast<TokenCount>(path.tokens.size());
  cache.WarmPath(DomainOf(cache, path), path.tokens, path.rule);
  PrefixMatch match = cache.Lookup(DomainOf(cache, path), path.tokens, limit, path.rule);
  const TokenCount found = match.tokens;
  EXPECT_GE(found, expected.tokens);
  if (found == 0) return;
  WakeSignal wake;
  const auto restore = cache.StartRestore(std::move(match), path.tokens, wake.callback());
  TokenCount good = 0;
  for (;;) {
    const int seen = wake.count();
    const Restore::State state = restore->Poll();
    if (state == Restore::State::kPending) {
      wake.WaitAfter(seen);
      continue;
    }
    if (state == Restore::State::kFailed) {
      EXPECT_TRUE(expected.may_fail);
    }
    if (state == Restore::State::kDone) {
      EXPECT_EQ(good, found);
    }
    if (state != Restore::State::kReady) break;
    const MatchedSegment& segment = restore->segment();
    std::vector<std::byte> checkpoint;
    std::span<const std::byte> want;
    if (segment.kind == SegmentKind::kCheckpoint) {
      checkpoint = CheckpointOf(path.tokens, segment.first_token);
      want = checkpoint;
    } else {
      ASSERT_EQ(segment.first_token, good);
      want =
          std::span(path.rows).subspan(static_cast<std::size_t>(good) * kTestRowBytes,
                                       static_cast<std::size_t>(segment.rows_used) * kTestRowBytes);
      good += segment.rows_used;
    }
    ASSERT_GE(restore->bytes().size(), want.size());
    ASSERT_EQ(std::memcmp(restore->bytes().data(), want.data(), want.size()), 0)
        << "wrong bytes at token " << segment.first_token;
    restore->Pop();
  }
  counts_.found_tokens += static_cast<std::uint64_t>(found);
  counts_.kept_tokens += static_cast<std::uint64_t>(expected.tokens);
}

// When nothing is kept any more, no block may be held by anything.
void CrashWorld::CheckNothingLeaks(Env* env, Cache& cache) {
  ASSERT_TRUE(cache.Flush());
  const bool quarantined = cache.GetStatus().disk.quarantined_bytes > 0;
  EXPECT_TRUE(cache.Clear(std::nullopt));
  const CacheStatus status = cache.GetStatus();
  EXPECT_EQ(status.disk.manifests, 0U);
  EXPECT_EQ(status.disk.unique_segments, 0U);
  EXPECT_EQ(status.disk.payload_bytes, 0U);
  if (!quarantined) {
    EXPECT_EQ(PackCount(env), 0U);
  }
}

// What the reopened cache left is whole, row by row and block by block.
void CrashWorld::CheckStore(Env* env, bool may_be_damaged) {
  const auto report = VerifyStore(env, {.directory = kRoot});
  ASSERT_TRUE(report) << report.error().text;
  EXPECT_EQ(report->bad_rows, 0U);
  EXPECT_EQ(report->bad_manifests, 0U);
  EXPECT_EQ(report->orphan_bytes, 0U);
  EXPECT_EQ(report->unread_payloads, 0U);
  EXPECT_TRUE(report->foreign_files.empty());
  EXPECT_GE(report->block_bytes, report->payload_bytes);
  EXPECT_LE(report->block_bytes, report->payload_bytes + report->segments * 4096);
  if (!may_be_damaged) {
    EXPECT_EQ(report->bad_payloads, 0U);
  }
}

}  // namespace skippy
