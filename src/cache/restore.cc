#include "cache/restore.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"

namespace skippy {

ReadThreads::ReadThreads(int thread_count) {
  for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { Loop(); });
}

bool ReadThreads::Submit(std::function<void()> task) {
  MutexLock lock(mu_);
  if (stopping_) return false;
  tasks_.push_back(std::move(task));
  changed_.NotifyOne();
  return true;
}

void ReadThreads::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ReadThreads::Loop() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu_);
      while (tasks_.empty() && !stopping_) changed_.Wait(mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

namespace {

enum class PieceState { kWaiting, kReading, kReady, kFailed };

struct Piece {
  Place place;  // constant
  PieceState state = PieceState::kWaiting;
  // With kReady: the bytes and who keeps them.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> holder;
};

// What the restoring thread and the reading threads share. A read that is under way when the
// restore is dropped ends here; lease and places are let go with the last such read, or at once.
class RestoreJob : public std::enable_shared_from_this<RestoreJob> {
 public:
  RestoreJob(std::shared_ptr<SharedState> shared, const std::shared_ptr<ReadThreads>& threads,
             PrefixMatch match, std::function<void()> wake)
      : shared_(std::move(shared)),
        threads_(threads),
        match_(std::move(match)),
        wake_(std::move(wake)) {
    held_.lease = std::move(match_.lease);
  }

  const PrefixMatch& match() const { return match_; }

  // Takes the places as they are now. A segment that is gone, or does not hold the tokens of
  // `path`, ends the restore there.
  void Prepare(std::span<const Token> path) EXCLUDES(mu_);
  void ReadAhead(std::size_t next) EXCLUDES(mu_);
  PieceState StateOf(std::size_t index) EXCLUDES(mu_);
  std::span<const std::byte> BytesOf(std::size_t index) EXCLUDES(mu_);
  void Drop(std::size_t index) EXCLUDES(mu_);
  void Cancel() EXCLUDES(mu_);
  void Reject(std::size_t index) { shared_->RejectSegment(match_.segments.at(index).id); }
  std::uint64_t bytes_read() EXCLUDES(mu_);

 private:
  bool HoldsPath(const MatchedSegment& segment, std::span<const Token> path) const
      REQUIRES(shared_->mu);
  void Read(std::size_t index) EXCLUDES(mu_);
  void Fail(std::size_t index) EXCLUDES(mu_);
  // The bytes and their digest; nullopt when they are not those that were recorded.
  std::optional<HashedBytes> ReadVerified(const MatchedSegment& segment, const Place& place,
                                          const std::shared_ptr<PooledBuffer>& buffer);
  void TakeFromMemory(SegmentId id, Piece* piece) REQUIRES(shared_->mu);
  bool ShouldPromote(const std::vector<Piece>& pieces) REQUIRES(shared_->mu);
  // Hands verified bytes to the RAM tier when this restore is worth it. Null: it does not take
  // them.
  std::shared_ptr<const RamLayout> Promote(std::size_t index, HashedBytes bytes,
                                           PooledBuffer& buffer);
  void CountRead(std::uint64_t byte_count);
  void Wake() EXCLUDES(wake_mu_);

  // What must be destroyed without the lock.
  struct Held {
    std::shared_ptr<const void> lease;
    std::vector<Piece> pieces;
  };
  Held LetGoIfIdle() REQUIRES(mu_);

  const std::shared_ptr<SharedState> shared_;
  const std::weak_ptr<ReadThreads> threads_;
  PrefixMatch match_;                          // constant after Prepare; without its lease
  SegmentId promoted_tip_ = SegmentId::kNone;  // the last segment on disk; constant after Prepare
  bool promotes_ = false;                      // constant after Prepare

  std::atomic<bool> counted_fill_{false};
  Mutex mu_;
  Held held_ GUARDED_BY(mu_);
  std::size_t reads_under_way_ GUARDED_BY(mu_) = 0;
  std::uint64_t bytes_read_ GUARDED_BY(mu_) = 0;
  bool cancelled_ GUARDED_BY(mu_) = false;

  Mutex wake_mu_;  // held during the call: none runs after Cancel
  std::function<void()> wake_ GUARDED_BY(wake_mu_);
};

bool RestoreJob::HoldsPath(const MatchedSegment& segment, std::span<const Token> path) const {
  if (segment.kind == SegmentKind::kCheckpoint) return true;
  const std::span<const Token> stored = shared_->tables.index.Tokens(segment.id);
  const auto first = static_cast<std::size_t>(segment.first_token);
  const auto rows = static_cast<std::size_t>(segment.rows_used);
  if (stored.size() < rows || path.size() < first + rows) return false;
  return std::ranges::equal(stored.first(rows), path.subspan(first, rows));
}

void RestoreJob::Prepare(std::span<const Token> path) {
  std::vector<Piece> pieces(match_.segments.size());
  {
    MutexLock lock(shared_->mu);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const MatchedSegment& segment = match_.segments[i];
      const auto found = shared_->tables.places.find(segment.id);
      if (found == shared_->tables.places.end() || !HoldsPath(segment, path)) {
        pieces[i].state = PieceState::kFailed;
        break;
      }
      pieces[i].place = found->second;
      TakeFromMemory(segment.id, &pieces[i]);
      match_.segments[i].tier = pieces[i].state == PieceState::kReady ? Tier::kRam : Tier::kDisk;
      if (pieces[i].state == PieceState::kFailed) break;
    }
    promotes_ = ShouldPromote(pieces);
  }
  MutexLock lock(mu_);
  held_.pieces = std::move(pieces);
}

// No copy, no hash: the holder keeps the bytes from being evicted.
void RestoreJob::TakeFromMemory(SegmentId id, Piece* piece) {
  const Place& place = piece->place;
  if (place.pending != nullptr) {
    piece->bytes = place.pending->buffer->bytes();
    piece->holder = place.pending;
    piece->state = PieceState::kReady;
  } else if (place.in_ram) {
    const auto layout = shared_->ram.Peek(RamKeyOf(id, place.end_hash));
    SKIPPY_CHECK(layout != nullptr, "places and RAM tier disagree");
    piece->bytes = layout->segments.front().handle.bytes;
    piece->holder = layout;
    piece->state = PieceState::kReady;
  } else if (place.disk == nullptr) {
    piece->state = place.byte_count == 0 ? PieceState::kReady : PieceState::kFailed;
  }
}

bool RestoreJob::ShouldPromote(const std::vector<Piece>& pieces) {
  CacheTables& tables = shared_->tables;
  PromotionTable::Fill fill{.tokens = match_.tokens, .limit_bytes = tables.ram.budget_bytes / 2};
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].state != PieceState::kWaiting || pieces[i].place.disk == nullptr) continue;
    promoted_tip_ = match_.segments[i].id;
    fill.byte_count += pieces[i].place.byte_count;
  }
  fill.tip = promoted_tip_;
  if (fill.byte_count == 0 || tables.ram.budget_bytes == 0) return false;
  return tables.promotion.Observe(fill, shared_->env->MonotonicNow());
}

void RestoreJob::ReadAhead(std::size_t next) {
  const std::shared_ptr<ReadThreads> threads = threads_.lock();
  std::vector<std::size_t> to_read;
  {
    MutexLock lock(mu_);
    const auto window = static_cast<std::size_t>(shared_->options.read_ahead_segments);
    const std::size_t end = std::min(held_.pieces.size(), next + window);
    for (std::size_t i = next; i < end; ++i) {
      Piece& piece = held_.pieces[i];
      if (piece.state == PieceState::kFailed) break;
      if (piece.state != PieceState::kWaiting) continue;
      piece.state = PieceState::kReading;
      ++reads_under_way_;
      to_read.push_back(i);
    }
  }
  for (const std::size_t index : to_read) {
    const bool submitted = threads != nullptr && threads->Submit([self = shared_from_this(),
                                                                  index] { self->Read(index); });
    if (!submitted) Fail(index);
  }
}

void RestoreJob::Fail(std::size_t index) {
  MutexLock lock(mu_);
  held_.pieces[index].state = PieceState::kFailed;
  --reads_under_way_;
}

RestoreJob::Held RestoreJob::LetGoIfIdle() {
  return cancelled_ && reads_under_way_ == 0 ? std::exchange(held_, {}) : Held{};
}

PieceState RestoreJob::StateOf(std::size_t index) {
  MutexLock lock(mu_);
  return held_.pieces[index].state;
}

std::span<const std::byte> RestoreJob::BytesOf(std::size_t index) {
  MutexLock lock(mu_);
  Piece& piece = held_.pieces[index];
  SKIPPY_CHECK(piece.state == PieceState::kReady, "bytes of a segment that is not ready");
  return piece.bytes;
}

void RestoreJob::Drop(std::size_t index) {
  std::shared_ptr<const void> holder;
  Place place;
  MutexLock lock(mu_);
  std::swap(holder, held_.pieces[index].holder);
  std::swap(place, held_.pieces[index].place);
}

void RestoreJob::Cancel() {
  Held let_go;
  {
    MutexLock lock(mu_);
    cancelled_ = true;
    let_go = LetGoIfIdle();
  }
  MutexLock lock(wake_mu_);
  wake_ = nullptr;
}

std::uint64_t RestoreJob::bytes_read() {
  MutexLock lock(mu_);
  return bytes_read_;
}

void RestoreJob::Read(std::size_t index) {
  Held let_go;
  Place place;
  {
    MutexLock lock(mu_);
    if (cancelled_) {
      --reads_under_way_;
      let_go = LetGoIfIdle();
      return;
    }
    place = held_.pieces[index].place;
  }
  std::shared_ptr<PooledBuffer> buffer = shared_->pool->Acquire(place.byte_count);
  std::optional<HashedBytes> verified;
  if (buffer != nullptr) verified = ReadVerified(match_.segments[index], place, buffer);
  const bool good = verified.has_value();
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> holder;
  if (good) {
    CountRead(place.byte_count);
    bytes = buffer->bytes();
    if (auto layout = Promote(index, *std::exchange(verified, std::nullopt), *buffer)) {
      bytes = layout->segments.front().handle.bytes;
      holder = std::move(layout);
      buffer.reset();  // the tier's now
    } else {
      holder = std::move(buffer);
    }
  }
  place = {};
  {
    MutexLock lock(mu_);
    Piece& piece = held_.pieces[index];
    piece.state = good ? PieceState::kReady : PieceState::kFailed;
    if (good) {
      bytes_read_ += bytes.size();
      piece.bytes = bytes;
      piece.holder = std::move(holder);
    }
    --reads_under_way_;
    let_go = LetGoIfIdle();
  }
  Wake();
}

std::optional<HashedBytes> RestoreJob::ReadVerified(const MatchedSegment& segment,
                                                    const Place& place,
                                                    const std::shared_ptr<PooledBuffer>& buffer) {
  Status read;
  if (place.byte_count > 0) {
    read = shared_->disk.packs->Read(place.disk->extents(), buffer->blocks());
  }
  if (!read) {
    LogWarning("cache: segment {} could not be read: {}", static_cast<std::uint64_t>(segment.id),
               read.error().text);
    MutexLock lock(shared_->mu);
    shared_->tables.activity.last_error = read.error().text;
    if (read.error().code != ErrorCode::kCorrupt) return std::nullopt;
  } else {
    HashedBytes bytes({buffer, buffer->bytes(), buffer->capacity_bytes()});
    if (bytes.digest() == place.digest) return bytes;
  }
  shared_->ReportBadSegment(segment.id, place.disk);
  return std::nullopt;
}

std::shared_ptr<const RamLayout> RestoreJob::Promote(std::size_t index, HashedBytes bytes,
                                                     PooledBuffer& buffer) {
  if (!promotes_ || buffer.bytes().empty()) return nullptr;
  MutexLock lock(shared_->mu);
  shared_->tables.promotion.MarkAttempted(promoted_tip_);
  return shared_->PromoteToRam(match_.segments[index].id, std::move(bytes), buffer);
}

void RestoreJob::CountRead(std::uint64_t byte_count) {
  const bool is_first = !counted_fill_.exchange(true);
  MutexLock lock(shared_->mu);
  shared_->tables.activity.bytes_read += byte_count;
  if (is_first) ++shared_->tables.activity.fills;
}

void RestoreJob::Wake() {
  MutexLock lock(wake_mu_);
  if (wake_) wake_();
}

class RestoreImpl final : public Restore {
 public:
  explicit RestoreImpl(std::shared_ptr<RestoreJob> job) : job_(std::move(job)) {
    job_->ReadAhead(next_);
  }
  ~RestoreImpl() override { job_->Cancel(); }

  State Poll() override {
    if (next_ == job_->match().segments.size()) return State::kDone;
    switch (job_->StateOf(next_)) {
      case PieceState::kReady:
        return State::kReady;
      case PieceState::kFailed:
        return State::kFailed;
      case PieceState::kWaiting:
      case PieceState::kReading:
        return State::kPending;
    }
    return State::kFailed;
  }
  const MatchedSegment& segment() const override { return job_->match().segments.at(next_); }
  std::span<const std::byte> bytes() const override { return job_->BytesOf(next_); }
  void Pop() override {
    job_->Drop(next_);
    ++next_;
    job_->ReadAhead(next_);
  }
  void Reject() override { job_->Reject(next_); }
  std::uint64_t bytes_read() const override { return job_->bytes_read(); }

 private:
  const std::shared_ptr<RestoreJob> job_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Restore> MakeRestore(const std::shared_ptr<SharedState>& shared,
                                     const std::shared_ptr<ReadThreads>& threads, PrefixMatch match,
                                     std::span<const Token> path, std::function<void()> wake) {
  auto job = std::make_shared<RestoreJob>(shared, threads, std::move(match), std::move(wake));
  job->Prepare(path);
  return std::make_unique<RestoreImpl>(std::move(job));
}

}  // namespace skippy
