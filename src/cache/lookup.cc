// Finding prefixes and starting to read them.
#include <algorithm>
#include <utility>

#include "cache/cache_impl.h"

namespace skippy {
namespace {

std::span<const Token> Head(std::span<const Token> tokens, TokenCount limit) {
  return tokens.first(std::min(tokens.size(), static_cast<std::size_t>(std::max(limit, 0))));
}

bool InMemory(const Place& place) {
  return place.pending != nullptr || place.in_ram || place.disk == nullptr;
}

}  // namespace

PrefixMatch CacheImpl::MatchOf(const PathMatch& found) const {
  PrefixMatch match;
  match.tokens = found.tokens;
  match.segments.reserve(found.steps.size());
  for (const PathStep& step : found.steps) {
    const auto place = shared_->tables.places.find(step.segment);
    const bool is_cold = place == shared_->tables.places.end();
    const std::uint64_t byte_count =
        is_cold ? shared_->tables.ledger.FindSegment(step.segment)->byte_count
                : place->second.byte_count;
    match.byte_count += byte_count;
    match.segments.push_back({.id = step.segment,
                              .kind = step.kind,
                              .first_token = step.first_token,
                              .rows_used = step.rows_used,
                              .row_count = step.row_count,
                              .byte_count = byte_count,
                              .tier = !is_cold && InMemory(place->second) ? Tier::kRam
                                                                          : Tier::kDisk});
  }
  return match;
}

PrefixMatch CacheImpl::Lookup(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                              ResumeRule rule) {
  PrefixMatch match;
  {
    MutexLock lock(shared_->mu);
    CacheTables& tables = shared_->tables;
    if (!shared_->has_tier() || tables.closing) return match;
    const PathMatch found = tables.index.Find(domain, Head(tokens, limit), rule);
    match = MatchOf(found);
    const bool in_ram = std::ranges::any_of(
        match.segments, [](const MatchedSegment& segment) { return segment.tier == Tier::kRam; });
    ++(in_ram ? tables.ram.hits : tables.ram.misses);
    if (match.segments.empty()) {
      ++tables.activity.misses;
      return match;
    }
    ++tables.activity.hits;
    tables.ledger.TouchChain(match.segments.back().id, /*count_hit=*/true);
    shared_->TouchInRam(match.segments.back().id);
    shared_->Pin(match.segments.back().id);
  }
  match.lease = std::make_shared<SegmentPin>(shared_, match.segments.back().id);
  return match;
}

TokenCount CacheImpl::Peek(DomainId domain, std::span<const Token> tokens, TokenCount limit,
                           ResumeRule rule) {
  MutexLock lock(shared_->mu);
  if (!shared_->has_tier() || shared_->tables.closing) return 0;
  return shared_->tables.index.Find(domain, Head(tokens, limit), rule).tokens;
}

std::optional<RemovedPrefix> CacheImpl::FindRemoved(DomainId domain,
                                                    std::span<const Token> tokens) {
  std::vector<RemovalEntry> entries;
  DomainSpec spec;
  {
    MutexLock lock(shared_->mu);
    const auto found = shared_->tables.domains.find(domain);
    if (found == shared_->tables.domains.end()) return std::nullopt;
    spec = found->second.spec;
    entries = shared_->tables.removal_log.entries();
  }
  return FindRemovedPrefix(std::move(entries), spec.state, spec.name_space, tokens);
}

std::unique_ptr<Restore> CacheImpl::StartRestore(PrefixMatch match, std::span<const Token> path,
                                                 std::function<void()> wake) {
  return MakeRestore(shared_, read_threads_, std::move(match), path, std::move(wake));
}

}  // namespace skippy
