#include "engine/text_assembler.h"

#include <algorithm>
#include <utility>

namespace skippy {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

unsigned char At(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// The smallest and largest second byte that may follow `first`: keeps out overlong forms,
// surrogates and what lies above U+10FFFF.
std::pair<unsigned, unsigned> SecondByteRange(unsigned char first) {
  switch (first) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

std::size_t SequenceBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;  // cannot begin a code point
}

struct CodePoint {
  enum class Kind { kValid, kInvalid, kIncomplete };
  Kind kind;
  std::size_t byte_count;  // kInvalid: how many bytes one U+FFFD stands for
};

// What `text`, which is not empty, begins with.
CodePoint NextCodePoint(std::string_view text) {
  const std::size_t wanted = SequenceBytes(At(text, 0));
  if (wanted == 0) return {CodePoint::Kind::kInvalid, 1};
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return {CodePoint::Kind::kIncomplete, i};
    const auto [low, high] =
        i == 1 ? SecondByteRange(At(text, 0)) : std::pair<unsigned, unsigned>{0x80, 0xBF};
    if (At(text, i) < low || At(text, i) > high) return {CodePoint::Kind::kInvalid, i};
  }
  return {CodePoint::Kind::kValid, wanted};
}

// Length of the longest suffix of `text` that is a beginning of `stop`, but not all of it.
std::size_t SuffixThatBegins(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

std::vector<std::string> WithoutEmpty(std::vector<std::string> stops) {
  std::erase_if(stops, [](const std::string& stop) { return stop.empty(); });
  return stops;
}

}  // namespace

TextAssembler::TextAssembler(std::vector<std::string> stops)
    : stops_(WithoutEmpty(std::move(stops))) {}

TextAssembler::Release TextAssembler::Append(std::string_view piece) {
  if (stopped_) return {};
  Decode(piece);
  if (auto stop = TakeStop()) return *std::move(stop);
  return Take(held_.size() - HeldBytes());
}

TextAssembler::Release TextAssembler::Finish() {
  if (stopped_) return {};
  if (!incomplete_.empty()) {
    incomplete_.clear();
    held_ += kReplacement;
  }
  PlaceWaitingTokens();
  if (auto stop = TakeStop()) return *std::move(stop);
  return Take(held_.size());
}

// Moves what is complete to held_. A token ends where its last code point does.
void TextAssembler::Decode(std::string_view piece) {
  const bool completes_earlier = !incomplete_.empty() && !piece.empty();
  incomplete_ += piece;
  std::string_view rest = incomplete_;
  bool first = true;
  while (!rest.empty()) {
    const CodePoint next = NextCodePoint(rest);
    if (next.kind == CodePoint::Kind::kIncomplete) break;
    held_ += next.kind == CodePoint::Kind::kValid ? rest.substr(0, next.byte_count) : kReplacement;
    rest.remove_prefix(next.byte_count);
    if (first && completes_earlier) PlaceWaitingTokens();
    first = false;
  }
  incomplete_ = std::string(rest);
  ++waiting_tokens_;
  if (incomplete_.empty()) PlaceWaitingTokens();
}

void TextAssembler::PlaceWaitingTokens() {
  for (; waiting_tokens_ > 0; --waiting_tokens_) {
    token_ends_.push_back(released_bytes_ + held_.size());
  }
}

std::optional<TextAssembler::Release> TextAssembler::TakeStop() {
  std::size_t match_begin = 0;
  const std::string* match = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    const std::size_t match_end = match != nullptr ? match_begin + match->size() : 0;
    if (match == nullptr || end < match_end || (end == match_end && begin < match_begin)) {
      match = &stop;
      match_begin = begin;
    }
  }
  if (match == nullptr) return std::nullopt;
  Release release = Take(match_begin);
  if (!token_ends_.empty() && last_counted_end_ < released_bytes_) ++release.token_count;
  release.stop = *match;
  stopped_ = true;
  return release;
}

std::size_t TextAssembler::HeldBytes() const {
  std::size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, SuffixThatBegins(held_, stop));
  return held;
}

TextAssembler::Release TextAssembler::Take(std::size_t byte_count) {
  Release release;
  release.text = held_.substr(0, byte_count);
  held_.erase(0, byte_count);
  released_bytes_ += byte_count;
  while (!token_ends_.empty() && token_ends_.front() <= released_bytes_) {
    last_counted_end_ = token_ends_.front();
    token_ends_.pop_front();
    ++release.token_count;
  }
  return release;
}

}  // namespace skippy
