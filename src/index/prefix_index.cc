#include "index/prefix_index.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "index/slot_table.h"

namespace skippy {
namespace {

using Slot = std::uint32_t;
constexpr Slot kNoSlot = SlotTable::kNoSlot;

// A segment. Children of the two kinds hang in two lists, so that the deepest checkpoint of a node
// is found without a walk over its (possibly thousands of) branches.
struct Node {
  SegmentId id = SegmentId::kNone;  // kNone: the slot is free
  std::unique_ptr<Token[]> tokens;  // null for a checkpoint and when cold
  std::uint64_t head_hash = 0;      // 0 for a checkpoint
  PathHash tokens_digest;           // when cold: the leading bytes
  TokenCount first_token = 0;
  TokenCount token_count = 0;
  DomainId domain = DomainId::kNone;
  SegmentKind kind = SegmentKind::kRows;
  std::uint32_t child_heads = 0;  // see HeadBit
  Slot parent = kNoSlot;
  Slot first_rows_child = kNoSlot;
  Slot first_checkpoint = kNoSlot;
  Slot next_sibling = kNoSlot;
  Slot previous_sibling = kNoSlot;

  TokenCount end() const { return first_token + token_count; }
  bool is_cold() const { return token_count > 0 && tokens == nullptr; }
  std::span<const Token> rows() const {
    return {tokens.get(), is_cold() ? 0 : static_cast<std::size_t>(token_count)};
  }
  Slot& list_of(SegmentKind child_kind) {
    return child_kind == SegmentKind::kRows ? first_rows_child : first_checkpoint;
  }
};

// Bytes that the allocator is assumed to add to every block.
constexpr std::uint64_t kAllocationOverheadBytes = 16;

// Of the segments that begin where a path has a few tokens left, the newest ones are looked at.
constexpr int kTailProbesMax = 64;

// Stands for a head of this many tokens in a set of lengths.
std::uint32_t HeadBit(TokenCount head_tokens) { return 1U << (head_tokens - 1); }
static_assert(kHeadTokens <= 32);

// Where a child hangs and how it begins. Several may have the same key.
struct ChildKey {
  DomainId domain = DomainId::kNone;
  Slot parent = kNoSlot;
  TokenCount position = 0;
  SegmentKind kind = SegmentKind::kRows;
  std::uint64_t head_hash = 0;
  friend bool operator==(const ChildKey&, const ChildKey&) = default;
};

std::uint32_t MixBits(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93ULL;
  return static_cast<std::uint32_t>(value ^ (value >> 32));
}

std::uint32_t HashOf(SegmentId id) { return MixBits(static_cast<std::uint64_t>(id)); }

std::uint32_t HashOf(const ChildKey& key) {
  const std::uint64_t point =
      (static_cast<std::uint64_t>(key.parent) << 32) | static_cast<std::uint32_t>(key.position);
  const std::uint64_t begin = key.head_hash ^ (static_cast<std::uint64_t>(key.domain) << 1) ^
                              static_cast<std::uint64_t>(key.kind);
  return MixBits(point ^ (static_cast<std::uint64_t>(MixBits(begin)) * 0x9E3779B97F4A7C15ULL));
}

ChildKey KeyOf(const Node& node) {
  return {node.domain, node.parent, node.first_token, node.kind, node.head_hash};
}

PathHash ShortDigest(const TokensDigest& digest) {
  PathHash out;
  std::copy_n(digest.bytes.begin(), out.bytes.size(), out.bytes.begin());
  return out;
}

TokenCount CommonTokens(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t count = std::min(a.size(), b.size());
  if (std::memcmp(a.data(), b.data(), count * sizeof(Token)) == 0) {
    return static_cast<TokenCount>(count);
  }
  const auto [first, second] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<TokenCount>(first - a.begin());
}

}  // namespace

struct PathHasher::Impl {
  Hasher hasher;
};

PathHasher::PathHasher(const StateIdentity& state, std::string_view name_space)
    : impl_(std::make_unique<Impl>(Impl{Hasher("skippy token path v1")})) {
  Hasher root("skippy domain root v1");
  root.Update(state.bytes.data(), state.bytes.size());
  root.UpdateString(name_space);
  const auto digest = root.Finish<StateIdentity>();
  impl_->hasher.Update(digest.bytes.data(), digest.bytes.size());
}

PathHasher::~PathHasher() = default;

void PathHasher::Update(std::span<const Token> tokens) {
  if constexpr (std::endian::native == std::endian::little) {
    impl_->hasher.Update(std::as_bytes(tokens));
  } else {
    for (const Token token : tokens) {
      impl_->hasher.UpdateInt(token);
    }
  }
}

PathHash PathHasher::Finish() const { return impl_->hasher.Finish<PathHash>(); }

struct PrefixIndex::Impl {
  // One node of a matching path and how many of its leading rows match.
  struct Visit {
    Slot slot = kNoSlot;
    TokenCount rows_used = 0;
  };

  explicit Impl(TokenCount head) : head_tokens(head) {}

  Slot SlotOf(SegmentId id) const {
    return by_id.Find(HashOf(id), [&](Slot slot) { return nodes[slot].id == id; });
  }
  // The first child with this key that `accepts`.
  template <class Accepts>
  Slot ChildOf(const ChildKey& key, const Accepts& accepts) const {
    return by_begin.Find(
        HashOf(key), [&](Slot slot) { return KeyOf(nodes[slot]) == key && accepts(nodes[slot]); });
  }
  std::uint64_t HeadHashOf(std::span<const Token> tokens) const;

  struct Walked {
    std::vector<Visit> path;
    std::vector<SegmentId> cold;
  };
  Walked Walk(DomainId domain, std::span<const Token> tokens, ResumeRule rule) const;
  void ExtendToEnd(Walked* walked, std::span<const Token> tokens) const;
  Visit LongestChild(const ChildKey& point, std::span<const Token> rest, ResumeRule rule,
                     std::vector<SegmentId>* cold) const;
  TokenCount RowsUsed(Slot slot, std::span<const Token> rest, ResumeRule rule,
                      std::vector<SegmentId>* cold) const;
  PathMatch MatchOf(const Walked& walked) const;
  Visit DeepestCheckpoint(std::vector<Visit>& path) const;
  bool MayHang(const NewSegment& segment, Slot parent) const;
  bool MayInsert(const NewSegment& segment, Slot parent) const;
  Slot Add(const NewSegment& segment, TokenCount token_count, Slot parent);
  void Link(Slot slot);
  void Unlink(Slot slot);
  Slot TakeSlot();
  void Remove(Slot slot);
  void CheckNode(Slot slot) const;
  std::size_t CheckList(Slot parent, SegmentKind kind) const;

  const TokenCount head_tokens;
  std::deque<Node> nodes;
  std::vector<Slot> free_slots;
  SlotTable by_id;
  SlotTable by_begin;
  std::unordered_map<DomainId, std::uint32_t> root_heads;
  std::uint64_t token_bytes = 0;  // of all nodes, allocation overhead included
};

std::uint64_t PrefixIndex::Impl::HeadHashOf(std::span<const Token> tokens) const {
  return HashHead(tokens.first(std::min(tokens.size(), static_cast<std::size_t>(head_tokens))));
}

// How many rows of the node a path may use that goes on with `rest`; the head agrees by its hash.
TokenCount PrefixIndex::Impl::RowsUsed(Slot slot, std::span<const Token> rest, ResumeRule rule,
                                       std::vector<SegmentId>* cold) const {
  const Node& node = nodes[slot];
  const auto row_count = static_cast<std::size_t>(node.token_count);
  if (node.is_cold()) {
    if (rest.size() >= row_count &&
        ShortDigest(DigestTokens(rest.first(row_count))) == node.tokens_digest) {
      return node.token_count;
    }
    if (node.token_count > head_tokens && rule != ResumeRule::kSegmentEnd &&
        cold->size() < kColdCandidatesMax) {
      cold->push_back(node.id);
    }
    return 0;
  }
  const TokenCount common = CommonTokens(node.rows(), rest);
  if (common == node.token_count) return common;
  return rule != ResumeRule::kSegmentEnd && common >= head_tokens ? common : 0;
}

PrefixIndex::Impl::Visit PrefixIndex::Impl::LongestChild(const ChildKey& point,
                                                         std::span<const Token> rest,
                                                         ResumeRule rule,
                                                         std::vector<SegmentId>* cold) const {
  std::uint32_t heads = 0;
  if (point.parent != kNoSlot) {
    heads = nodes[point.parent].child_heads;
  } else if (const auto root = root_heads.find(point.domain); root != root_heads.end()) {
    heads = root->second;
  }
  Visit best;
  HeadHasher hasher;
  ChildKey key = point;
  const auto longest_head = std::min(rest.size(), static_cast<std::size_t>(head_tokens));
  for (std::size_t head = 1; head <= longest_head; ++head) {
    hasher.Update(rest[head - 1]);
    if ((heads & HeadBit(static_cast<TokenCount>(head))) == 0) continue;
    key.head_hash = hasher.Value();
    by_begin.Find(HashOf(key), [&](Slot slot) {
      if (KeyOf(nodes[slot]) != key) return false;
      const TokenCount rows_used = RowsUsed(slot, rest, rule, cold);
      if (rows_used > best.rows_used) best = {slot, rows_used};
      return false;
    });
  }
  return best;
}

// The chain that the tokens name, root first.
PrefixIndex::Impl::Walked PrefixIndex::Impl::Walk(DomainId domain, std::span<const Token> tokens,
                                                  ResumeRule rule) const {
  Walked walked;
  Slot at = kNoSlot;
  std::size_t position = 0;
  while (position < tokens.size()) {
    const Visit next = LongestChild(
        {.domain = domain, .parent = at, .position = static_cast<TokenCount>(position)},
        tokens.subspan(position), rule, &walked.cold);
    if (next.slot == kNoSlot) break;
    at = next.slot;
    walked.path.push_back(next);
    position += static_cast<std::size_t>(next.rows_used);
  }
  return walked;
}

// The few tokens that are left may be the head of a short segment, as where a prompt is asked again
// and its last token has to be computed.
void PrefixIndex::Impl::ExtendToEnd(Walked* walked, std::span<const Token> tokens) const {
  if (walked->path.empty()) return;
  const Visit& last = walked->path.back();
  const TokenCount position = nodes[last.slot].first_token + last.rows_used;
  const auto rest = tokens.subspan(static_cast<std::size_t>(position));
  if (rest.empty() || rest.size() >= static_cast<std::size_t>(head_tokens)) return;
  int probes_left = kTailProbesMax;
  for (Slot slot = nodes[last.slot].first_rows_child; slot != kNoSlot && probes_left > 0;
       slot = nodes[slot].next_sibling, --probes_left) {
    const Node& node = nodes[slot];
    if (node.first_token != position) continue;
    if (node.is_cold()) {
      const bool may_use = 2 * rest.size() >= static_cast<std::size_t>(node.token_count);
      if (may_use) walked->cold.push_back(node.id);
      continue;
    }
    const TokenCount common = CommonTokens(node.rows(), rest);
    if (static_cast<std::size_t>(common) == rest.size() && 2 * common >= node.token_count) {
      walked->path.push_back({slot, common});
      return;
    }
  }
}

PathMatch PrefixIndex::Impl::MatchOf(const Walked& walked) const {
  PathMatch match;
  match.steps.reserve(walked.path.size());
  for (const Visit& visit : walked.path) {
    const Node& node = nodes[visit.slot];
    match.steps.push_back(
        {node.id, node.kind, node.first_token, visit.rows_used, node.token_count});
    match.tokens = node.first_token + visit.rows_used;
  }
  match.cold = walked.cold;
  return match;
}

// The checkpoint with the highest position on `path`, which is cut to end there.
PrefixIndex::Impl::Visit PrefixIndex::Impl::DeepestCheckpoint(std::vector<Visit>& path) const {
  for (; !path.empty(); path.pop_back()) {
    const Node& rows = nodes[path.back().slot];
    const TokenCount limit = rows.first_token + path.back().rows_used;
    Slot best = kNoSlot;
    for (Slot at = rows.first_checkpoint; at != kNoSlot; at = nodes[at].next_sibling) {
      const TokenCount position = nodes[at].first_token;
      if (position <= limit && (best == kNoSlot || position > nodes[best].first_token)) {
        best = at;
      }
    }
    if (best != kNoSlot) {
      path.back().rows_used = nodes[best].first_token - rows.first_token;
      return {best, 0};
    }
  }
  return {};
}

// The parent is there, reaches the segment's position, and does not itself go on like it.
bool PrefixIndex::Impl::MayHang(const NewSegment& segment, Slot parent) const {
  if (segment.id == SegmentId::kNone || segment.domain == DomainId::kNone ||
      SlotOf(segment.id) != kNoSlot) {
    return false;
  }
  if (segment.parent == SegmentId::kNone) return segment.first_token == 0;
  if (parent == kNoSlot) return false;
  const Node& above = nodes[parent];
  // A point is named by the segment that ends there or goes on through it, never by the one that
  // begins there: hence first_token > the parent's.
  return above.domain == segment.domain && above.kind == SegmentKind::kRows &&
         segment.first_token > above.first_token && segment.first_token <= above.end();
}

bool PrefixIndex::Impl::MayInsert(const NewSegment& segment, Slot parent) const {
  const bool rows = segment.kind == SegmentKind::kRows;
  if (rows == segment.tokens.empty() || !MayHang(segment, parent)) return false;
  const ChildKey point{segment.domain, parent, segment.first_token, segment.kind, 0};
  if (!rows) {
    return ChildOf(point, [](const Node&) { return true; }) == kNoSlot;
  }
  if (parent != kNoSlot && segment.first_token < nodes[parent].end()) {
    const Node& above = nodes[parent];
    const TokenCount row = segment.first_token - above.first_token;
    if (above.is_cold() || row < head_tokens || above.tokens[row] == segment.tokens[0]) {
      return false;
    }
  }
  const ResumeRule rule = segment.whole_only ? ResumeRule::kSegmentEnd : ResumeRule::kAnyToken;
  std::vector<SegmentId> cold;
  return LongestChild(point, segment.tokens, rule, &cold).slot == kNoSlot;
}

Slot PrefixIndex::Impl::Add(const NewSegment& segment, TokenCount token_count, Slot parent) {
  const Slot slot = TakeSlot();
  Node& node = nodes[slot];
  node.id = segment.id;
  node.first_token = segment.first_token;
  node.token_count = token_count;
  node.domain = segment.domain;
  node.kind = segment.kind;
  node.parent = parent;
  return slot;
}

Slot PrefixIndex::Impl::TakeSlot() {
  if (free_slots.empty()) {
    SKIPPY_CHECK(nodes.size() < kNoSlot, "more segments than slot numbers");
    nodes.emplace_back();
    return static_cast<Slot>(nodes.size() - 1);
  }
  const Slot slot = free_slots.back();
  free_slots.pop_back();
  return slot;
}

void PrefixIndex::Impl::Link(Slot slot) {
  Node& node = nodes[slot];
  by_id.Insert(HashOf(node.id), slot);
  by_begin.Insert(HashOf(KeyOf(node)), slot);
  if (node.kind == SegmentKind::kRows) {
    const std::uint32_t bit = HeadBit(std::min(node.token_count, head_tokens));
    (node.parent == kNoSlot ? root_heads[node.domain] : nodes[node.parent].child_heads) |= bit;
  }
  if (node.parent == kNoSlot) {
    return;
  }
  Slot& head = nodes[node.parent].list_of(node.kind);
  node.next_sibling = head;
  if (head != kNoSlot) {
    nodes[head].previous_sibling = slot;
  }
  head = slot;
}

void PrefixIndex::Impl::Unlink(Slot slot) {
  Node& node = nodes[slot];
  by_id.Erase(HashOf(node.id), slot);
  by_begin.Erase(HashOf(KeyOf(node)), slot);
  if (node.next_sibling != kNoSlot) {
    nodes[node.next_sibling].previous_sibling = node.previous_sibling;
  }
  if (node.previous_sibling != kNoSlot) {
    nodes[node.previous_sibling].next_sibling = node.next_sibling;
  } else if (node.parent != kNoSlot) {
    nodes[node.parent].list_of(node.kind) = node.next_sibling;
  }
}

void PrefixIndex::Impl::Remove(Slot slot) {
  Unlink(slot);
  if (!nodes[slot].rows().empty()) {
    token_bytes -= nodes[slot].rows().size_bytes() + kAllocationOverheadBytes;
  }
  nodes[slot] = Node{};
  free_slots.push_back(slot);
}

PrefixIndex::PrefixIndex(TokenCount head_tokens) : impl_(std::make_unique<Impl>(head_tokens)) {
  SKIPPY_CHECK(head_tokens > 0 && head_tokens <= kHeadTokens, "head of a segment");
}
PrefixIndex::~PrefixIndex() = default;
PrefixIndex::PrefixIndex(PrefixIndex&& other) noexcept = default;
PrefixIndex& PrefixIndex::operator=(PrefixIndex&& other) noexcept = default;

PathMatch PrefixIndex::Find(DomainId domain, std::span<const Token> tokens, ResumeRule rule) const {
  Impl::Walked walked = impl_->Walk(domain, tokens, rule);
  if (rule == ResumeRule::kAnyToken) {
    impl_->ExtendToEnd(&walked, tokens);
  } else if (rule == ResumeRule::kCheckpoint) {
    if (const Impl::Visit checkpoint = impl_->DeepestCheckpoint(walked.path);
        checkpoint.slot != kNoSlot) {
      walked.path.push_back(checkpoint);
    }
  }
  return impl_->MatchOf(walked);
}

PathMatch PrefixIndex::FindRows(DomainId domain, std::span<const Token> tokens,
                                ResumeRule rule) const {
  return impl_->MatchOf(impl_->Walk(domain, tokens, rule));
}

std::optional<SegmentId> PrefixIndex::FindCheckpoint(DomainId domain,
                                                     std::span<const Token> tokens) const {
  const auto path = impl_->Walk(domain, tokens, ResumeRule::kCheckpoint).path;
  ChildKey key{domain, kNoSlot, static_cast<TokenCount>(tokens.size()), SegmentKind::kCheckpoint,
               0};
  TokenCount reached = 0;
  if (!path.empty()) {
    key.parent = path.back().slot;
    reached = impl_->nodes[key.parent].first_token + path.back().rows_used;
  }
  if (reached != key.position) return std::nullopt;
  const Slot found = impl_->ChildOf(key, [](const Node&) { return true; });
  return found == kNoSlot ? std::nullopt : std::optional(impl_->nodes[found].id);
}

bool PrefixIndex::Insert(NewSegment segment) {
  const Slot parent = impl_->SlotOf(segment.parent);
  if (!impl_->MayInsert(segment, parent)) {
    return false;
  }
  const auto token_count = static_cast<TokenCount>(segment.tokens.size());
  const Slot slot = impl_->Add(segment, token_count, parent);
  Node& node = impl_->nodes[slot];
  if (token_count > 0) {
    node.head_hash = impl_->HeadHashOf(segment.tokens);
    node.tokens = std::make_unique<Token[]>(segment.tokens.size());
    std::copy(segment.tokens.begin(), segment.tokens.end(), node.tokens.get());
    impl_->token_bytes += node.rows().size_bytes() + kAllocationOverheadBytes;
  }
  impl_->Link(slot);
  return true;
}

bool PrefixIndex::InsertCold(const ColdSegment& segment) {
  SKIPPY_CHECK(impl_->head_tokens == kHeadTokens, "the catalog's heads have another length");
  const Slot parent = impl_->SlotOf(segment.parent);
  const NewSegment place{.id = segment.id,
                         .domain = segment.domain,
                         .parent = segment.parent,
                         .first_token = segment.first_token};
  if (segment.token_count <= 0 || !impl_->MayHang(place, parent)) return false;
  const PathHash digest = ShortDigest(segment.tokens_digest);
  const ChildKey key{segment.domain, parent, segment.first_token, SegmentKind::kRows,
                     segment.head_hash};
  const Slot twin = impl_->ChildOf(key, [&](const Node& node) {
    if (node.token_count != segment.token_count) return false;
    return (node.is_cold() ? node.tokens_digest : ShortDigest(DigestTokens(node.rows()))) == digest;
  });
  if (twin != kNoSlot) return false;
  const Slot slot = impl_->Add(place, segment.token_count, parent);
  impl_->nodes[slot].head_hash = segment.head_hash;
  impl_->nodes[slot].tokens_digest = digest;
  impl_->Link(slot);
  return true;
}

bool PrefixIndex::Warm(SegmentId id, std::span<const Token> tokens) {
  const Slot slot = impl_->SlotOf(id);
  if (slot == kNoSlot || !impl_->nodes[slot].is_cold()) return true;
  Node& node = impl_->nodes[slot];
  if (tokens.size() != static_cast<std::size_t>(node.token_count) ||
      ShortDigest(DigestTokens(tokens)) != node.tokens_digest ||
      impl_->HeadHashOf(tokens) != node.head_hash) {
    return false;
  }
  node.tokens = std::make_unique<Token[]>(tokens.size());
  std::ranges::copy(tokens, node.tokens.get());
  impl_->token_bytes += tokens.size_bytes() + kAllocationOverheadBytes;
  return true;
}

bool PrefixIndex::IsCold(SegmentId id) const {
  const Slot slot = impl_->SlotOf(id);
  return slot != kNoSlot && impl_->nodes[slot].is_cold();
}

std::vector<SegmentId> PrefixIndex::Checkpoints(SegmentId id) const {
  std::vector<SegmentId> ids;
  const Slot rows = impl_->SlotOf(id);
  if (rows == kNoSlot) return ids;
  for (Slot at = impl_->nodes[rows].first_checkpoint; at != kNoSlot;
       at = impl_->nodes[at].next_sibling) {
    ids.push_back(impl_->nodes[at].id);
  }
  return ids;
}

bool PrefixIndex::Erase(SegmentId id) {
  const Slot slot = impl_->SlotOf(id);
  if (slot == kNoSlot || impl_->nodes[slot].first_rows_child != kNoSlot ||
      impl_->nodes[slot].first_checkpoint != kNoSlot) {
    return false;
  }
  impl_->Remove(slot);
  return true;
}

std::vector<SegmentId> PrefixIndex::EraseSubtree(SegmentId id) {
  std::vector<Slot> slots;  // breadth first: parents before children
  if (const Slot top = impl_->SlotOf(id); top != kNoSlot) {
    slots.push_back(top);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Node& node = impl_->nodes[slots[i]];
    for (Slot list : {node.first_rows_child, node.first_checkpoint}) {
      for (; list != kNoSlot; list = impl_->nodes[list].next_sibling) {
        slots.push_back(list);
      }
    }
  }
  std::vector<SegmentId> ids;
  ids.reserve(slots.size());
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    ids.push_back(impl_->nodes[*slot].id);
    impl_->Remove(*slot);
  }
  return ids;
}

bool PrefixIndex::Contains(SegmentId id) const { return impl_->SlotOf(id) != kNoSlot; }

SegmentId PrefixIndex::Parent(SegmentId id) const {
  const Slot slot = impl_->SlotOf(id);
  if (slot == kNoSlot || impl_->nodes[slot].parent == kNoSlot) {
    return SegmentId::kNone;
  }
  return impl_->nodes[impl_->nodes[slot].parent].id;
}

std::span<const Token> PrefixIndex::Tokens(SegmentId id) const {
  const Slot slot = impl_->SlotOf(id);
  return slot == kNoSlot ? std::span<const Token>{} : impl_->nodes[slot].rows();
}

std::vector<Token> PrefixIndex::Path(SegmentId id) const {
  Slot slot = impl_->SlotOf(id);
  if (slot == kNoSlot) {
    return {};
  }
  std::vector<Token> path(static_cast<std::size_t>(impl_->nodes[slot].end()));
  std::size_t end = path.size();
  for (; slot != kNoSlot; slot = impl_->nodes[slot].parent) {
    const Node& node = impl_->nodes[slot];
    SKIPPY_CHECK(!node.is_cold(), "the path of a cold segment");
    const auto first = static_cast<std::size_t>(node.first_token);
    std::copy_n(node.tokens.get(), end - first, path.begin() + node.first_token);
    end = first;
  }
  return path;
}

std::size_t PrefixIndex::segment_count() const { return impl_->by_id.count(); }

std::uint64_t PrefixIndex::MemoryBytes() const {
  return sizeof(Impl) + impl_->nodes.size() * sizeof(Node) +
         impl_->free_slots.capacity() * sizeof(Slot) + impl_->by_id.MemoryBytes() +
         impl_->by_begin.MemoryBytes() + impl_->token_bytes;
}

// Every node of the list belongs to `parent` and knows its neighbours. Returns their number.
std::size_t PrefixIndex::Impl::CheckList(Slot parent, SegmentKind kind) const {
  std::size_t count = 0;
  Slot previous = kNoSlot;
  const Node& above = nodes[parent];
  Slot at = kind == SegmentKind::kRows ? above.first_rows_child : above.first_checkpoint;
  for (; at != kNoSlot; at = nodes[at].next_sibling) {
    const Node& node = nodes[at];
    SKIPPY_CHECK(node.id != SegmentId::kNone, "a freed node is linked");
    SKIPPY_CHECK(node.parent == parent && node.kind == kind, "a node hangs in a foreign list");
    SKIPPY_CHECK(node.previous_sibling == previous, "sibling links disagree");
    previous = at;
    ++count;
  }
  return count;
}

void PrefixIndex::Impl::CheckNode(Slot slot) const {
  const Node& node = nodes[slot];
  const bool rows = node.kind == SegmentKind::kRows;
  SKIPPY_CHECK(SlotOf(node.id) == slot, "an id names another node");
  SKIPPY_CHECK(rows == (node.token_count > 0), "rows have tokens, checkpoints have none");
  const Slot twin = ChildOf(KeyOf(node), [&](const Node& other) {
    return &other != &node && other.token_count == node.token_count && !node.is_cold() &&
           !other.is_cold() && std::ranges::equal(other.rows(), node.rows());
  });
  SKIPPY_CHECK(twin == kNoSlot, "two children hold the same tokens");
  SKIPPY_CHECK(node.rows().empty() || HeadHashOf(node.rows()) == node.head_hash, "wrong head");
  if (node.parent == kNoSlot) {
    SKIPPY_CHECK(node.first_token == 0, "a path begins in the middle");
    return;
  }
  const Node& above = nodes[node.parent];
  SKIPPY_CHECK(above.id != SegmentId::kNone && above.kind == SegmentKind::kRows, "bad parent");
  SKIPPY_CHECK(above.domain == node.domain, "a path crosses domains");
  SKIPPY_CHECK(node.first_token > above.first_token && node.first_token <= above.end(),
               "a node does not touch its parent");
  SKIPPY_CHECK(!rows || node.first_token == above.end() || above.is_cold() || node.is_cold() ||
                   above.tokens[node.first_token - above.first_token] != node.tokens[0],
               "a child begins as its parent goes on");
}

void PrefixIndex::CheckInvariants() const {
  std::size_t live = 0;
  std::size_t linked = 0;
  std::uint64_t bytes = 0;
  for (Slot slot = 0; slot < impl_->nodes.size(); ++slot) {
    const Node& node = impl_->nodes[slot];
    if (node.id == SegmentId::kNone) {
      continue;
    }
    ++live;
    linked += node.parent == kNoSlot ? 1 : 0;
    bytes += !node.rows().empty() ? node.rows().size_bytes() + kAllocationOverheadBytes : 0;
    impl_->CheckNode(slot);
    linked += impl_->CheckList(slot, SegmentKind::kRows);
    linked += impl_->CheckList(slot, SegmentKind::kCheckpoint);
  }
  SKIPPY_CHECK(live == linked && live == impl_->by_id.count() && live == impl_->by_begin.count(),
               "nodes, lists and tables disagree");
  SKIPPY_CHECK(live + impl_->free_slots.size() == impl_->nodes.size(), "slots leak");
  SKIPPY_CHECK(bytes == impl_->token_bytes, "token bytes are counted wrongly");
}

}  // namespace skippy
