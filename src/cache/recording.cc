#include "cache/recording.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skippy {
namespace {

class ClosedRecording final : public Recording {
 public:
  std::optional<Run> NextRun(std::span<const Token>, TokenCount, bool) override {
    return std::nullopt;
  }
  RefusalReason Append(std::span<const Token>, const Run&, std::unique_ptr<Buffer>) override {
    return RefusalReason::kDisabled;
  }
  bool WantsCheckpoint(std::span<const Token>, TokenCount) override { return false; }
  RefusalReason AppendCheckpoint(std::span<const Token>, TokenCount,
                                 std::unique_ptr<Buffer>) override {
    return RefusalReason::kDisabled;
  }
  void Publish(std::span<const Token>, TokenCount) override {}
};

std::span<const Token> Head(std::span<const Token> path, TokenCount count) {
  return path.first(std::min(path.size(), static_cast<std::size_t>(std::max(count, 0))));
}

// Buffers come from AcquireBuffer, and so from this cache.
std::shared_ptr<PendingBytes> PendingOf(std::unique_ptr<Buffer> bytes) {
  auto* const pooled = dynamic_cast<PooledBuffer*>(bytes.get());
  SKIPPY_CHECK(pooled != nullptr, "a buffer of this cache");
  (void)bytes.release();
  return std::make_shared<PendingBytes>(std::shared_ptr<PooledBuffer>(pooled));
}

SegmentId TipOf(const PathMatch& match) {
  return match.steps.empty() ? SegmentId::kNone : match.steps.back().segment;
}

// Keeps the deepest segment of the path that the cache holds pinned, so that the path cannot be
// evicted while its continuation is being computed.
class RecordingImpl final : public Recording {
 public:
  RecordingImpl(std::shared_ptr<SharedState> shared, DomainId domain, ResumeRule rule,
                DomainSpec spec)
      : shared_(std::move(shared)), domain_(domain), rule_(rule), spec_(std::move(spec)) {}
  ~RecordingImpl() override;

  std::optional<Run> NextRun(std::span<const Token> path, TokenCount computed, bool flush) override;
  RefusalReason Append(std::span<const Token> path, const Run& run,
                       std::unique_ptr<Buffer> bytes) override;
  bool WantsCheckpoint(std::span<const Token> path, TokenCount position) override;
  RefusalReason AppendCheckpoint(std::span<const Token> path, TokenCount position,
                                 std::unique_ptr<Buffer> bytes) override;
  void Publish(std::span<const Token> path, TokenCount token_count) override;
  void Retain(std::chrono::seconds until) override {
    retained_until_s_ = static_cast<std::uint64_t>(until.count());
  }

 private:
  // What NextRun gives when the cache covers `covered_` tokens.
  std::optional<Run> RunUpTo(TokenCount computed, bool flush) const;
  PathHash HashUpTo(std::span<const Token> path);
  void MoveTo(const PathMatch& match) REQUIRES(shared_->mu);
  void HoldTip(SegmentId tip) REQUIRES(shared_->mu);
  RefusalReason Insert(NewSegment segment, Place place) REQUIRES(shared_->mu);
  RefusalReason Refuse(RefusalReason reason) REQUIRES(shared_->mu);
  // The path up to here could not be written: for the reason that was given then.
  RefusalReason RefuseLost() REQUIRES(shared_->mu);

  const std::shared_ptr<SharedState> shared_;
  const DomainId domain_;
  const ResumeRule rule_;
  const DomainSpec spec_;
  std::unique_ptr<PathHasher> hasher_;
  std::size_t hashed_tokens_ = 0;
  SegmentId held_ = SegmentId::kNone;
  TokenCount covered_ = 0;     // tokens of the path that the cache holds
  bool has_appended_ = false;  // since the last Publish
  bool ended_ = false;
  std::uint64_t retained_until_s_ = 0;  // 0: not
};

RecordingImpl::~RecordingImpl() {
  if (held_ == SegmentId::kNone) return;
  MutexLock lock(shared_->mu);
  const bool keeps = has_appended_ && rule_ != ResumeRule::kCheckpoint &&
                     !shared_->tables.closing &&
                     shared_->tables.ledger.FindSegment(held_) != nullptr;
  if (keeps) shared_->PublishAt(held_, covered_, retained_until_s_);
  shared_->Unpin(held_);
}

std::optional<Recording::Run> RecordingImpl::RunUpTo(TokenCount computed, bool flush) const {
  const TokenCount missing = computed - covered_;
  if (missing <= 0 || (missing < kMaxSegmentTokens && !flush)) return std::nullopt;
  return Run{covered_, std::min(missing, kMaxSegmentTokens)};
}

std::optional<Recording::Run> RecordingImpl::NextRun(std::span<const Token> path,
                                                     TokenCount computed, bool flush) {
  const std::span<const Token> head = Head(path, computed);
  const auto head_tokens = static_cast<TokenCount>(head.size());
  if (ended_ || !RunUpTo(head_tokens, flush)) return std::nullopt;
  MutexLock lock(shared_->mu);
  if (shared_->tables.closing) return std::nullopt;
  const PathMatch match = shared_->tables.index.FindRows(domain_, head, rule_);
  if (match.tokens < covered_) {  // what was appended could not be written
    ended_ = true;
    return std::nullopt;
  }
  MoveTo(match);
  return RunUpTo(head_tokens, flush);
}

void RecordingImpl::MoveTo(const PathMatch& match) {
  covered_ = match.tokens;
  HoldTip(TipOf(match));
}

void RecordingImpl::HoldTip(SegmentId tip) {
  if (tip == held_) return;
  if (tip != SegmentId::kNone) shared_->Pin(tip);
  if (held_ != SegmentId::kNone) shared_->Unpin(held_);
  held_ = tip;
}

PathHash RecordingImpl::HashUpTo(std::span<const Token> path) {
  if (hasher_ == nullptr || path.size() < hashed_tokens_) {
    hasher_ = std::make_unique<PathHasher>(spec_.state, spec_.name_space);
    hashed_tokens_ = 0;
  }
  hasher_->Update(path.subspan(hashed_tokens_));
  hashed_tokens_ = path.size();
  return hasher_->Finish();
}

RefusalReason RecordingImpl::Refuse(RefusalReason reason) {
  ended_ = true;
  shared_->CountRefusal(reason);
  return reason;
}

RefusalReason RecordingImpl::RefuseLost() {
  const RefusalReason last = shared_->tables.activity.last_refusal;
  return Refuse(last == RefusalReason::kNone ? RefusalReason::kStorageError : last);
}

RefusalReason RecordingImpl::Insert(NewSegment segment, Place place) {
  const RefusalReason refusal = shared_->Admits(place.byte_count);
  if (refusal != RefusalReason::kNone) return Refuse(refusal);
  CacheTables& tables = shared_->tables;
  segment.id = static_cast<SegmentId>(tables.next_segment++);
  segment.domain = domain_;
  segment.whole_only = rule_ == ResumeRule::kSegmentEnd;
  const SegmentId id = segment.id;
  LedgerSegment entry{.domain = domain_,
                      .parent = segment.parent,
                      .kind = segment.kind,
                      .first_token = segment.first_token,
                      .token_count = static_cast<TokenCount>(segment.tokens.size()),
                      .byte_count = place.byte_count};
  if (!tables.index.Insert(std::move(segment))) return RefusalReason::kNone;  // known already
  tables.ledger.AddSegment(id, std::move(entry));
  tables.places.emplace(id, std::move(place));
  shared_->Enqueue({.segment = id});
  HoldTip(id);
  has_appended_ = true;
  return RefusalReason::kNone;
}

RefusalReason RecordingImpl::Append(std::span<const Token> path, const Run& run,
                                    std::unique_ptr<Buffer> bytes) {
  const TokenCount end = run.first_token + run.token_count;
  SKIPPY_CHECK(run.first_token >= 0 && run.token_count > 0 && bytes != nullptr &&
                   run.token_count <= kMaxSegmentTokens &&
                   static_cast<std::size_t>(end) <= path.size(),
               "Append takes a run of NextRun and its bytes");
  if (ended_) return RefusalReason::kDisabled;
  const std::span<const Token> head = Head(path, end);
  Place place;
  place.byte_count = bytes->bytes().size();
  place.pending = PendingOf(std::move(bytes));
  place.end_hash = HashUpTo(head);
  place.end_token = end;
  MutexLock lock(shared_->mu);
  const PathMatch match = shared_->tables.index.FindRows(domain_, head, rule_);
  if (match.tokens < run.first_token) return RefuseLost();
  if (match.tokens > run.first_token) {  // somebody else was first
    MoveTo(match);
    return RefusalReason::kNone;
  }
  const auto own = head.subspan(static_cast<std::size_t>(run.first_token));
  NewSegment segment{
      .parent = TipOf(match), .first_token = run.first_token, .tokens = {own.begin(), own.end()}};
  const RefusalReason refusal = Insert(std::move(segment), std::move(place));
  if (refusal == RefusalReason::kNone) covered_ = end;
  return refusal;
}

bool RecordingImpl::WantsCheckpoint(std::span<const Token> path, TokenCount position) {
  const std::span<const Token> head = Head(path, position);
  if (ended_ || position <= 0 || head.size() != static_cast<std::size_t>(position)) return false;
  MutexLock lock(shared_->mu);
  return !shared_->tables.closing && !shared_->tables.index.FindCheckpoint(domain_, head);
}

RefusalReason RecordingImpl::AppendCheckpoint(std::span<const Token> path, TokenCount position,
                                              std::unique_ptr<Buffer> bytes) {
  SKIPPY_CHECK(
      position > 0 && static_cast<std::size_t>(position) <= path.size() && bytes != nullptr,
      "AppendCheckpoint takes a position of the path and its bytes");
  if (ended_) return RefusalReason::kDisabled;
  const std::span<const Token> head = Head(path, position);
  Place place;
  place.byte_count = bytes->bytes().size();
  place.pending = PendingOf(std::move(bytes));
  place.end_hash = HashUpTo(head);
  place.end_token = position;
  MutexLock lock(shared_->mu);
  if (shared_->tables.index.FindCheckpoint(domain_, head)) return RefusalReason::kNone;
  const PathMatch match = shared_->tables.index.FindRows(domain_, head, rule_);
  if (match.tokens != position) return RefuseLost();
  MoveTo(match);
  const SegmentId rows = held_;
  NewSegment segment{
      .parent = rows, .kind = SegmentKind::kCheckpoint, .first_token = position, .tokens = {}};
  const RefusalReason refusal = Insert(std::move(segment), std::move(place));
  if (refusal != RefusalReason::kNone || held_ == rows) return refusal;
  shared_->PublishAt(held_, position, retained_until_s_);
  HoldTip(rows);
  return refusal;
}

void RecordingImpl::Publish(std::span<const Token> path, TokenCount token_count) {
  const std::span<const Token> head = Head(path, token_count);
  if (head.empty()) return;
  MutexLock lock(shared_->mu);
  if (shared_->tables.closing || shared_->QueueIsFull()) return;
  const PathMatch match = shared_->tables.index.Find(domain_, head, rule_);
  if (match.tokens == 0) return;
  shared_->PublishAt(TipOf(match), match.tokens, retained_until_s_);
  if (match.tokens >= covered_) has_appended_ = false;
}

}  // namespace

std::unique_ptr<Recording> MakeRecording(std::shared_ptr<SharedState> shared, DomainId domain,
                                         ResumeRule rule) {
  DomainSpec spec;
  {
    MutexLock lock(shared->mu);
    spec = shared->tables.domains.at(domain).spec;
  }
  return std::make_unique<RecordingImpl>(std::move(shared), domain, rule, std::move(spec));
}

std::unique_ptr<Recording> MakeClosedRecording() { return std::make_unique<ClosedRecording>(); }

}  // namespace skippy
