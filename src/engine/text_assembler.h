// Turns the pieces of generated tokens into text that may be shown. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skippy {

// Invariant: the texts of all releases, joined, are valid UTF-8, contain no stop string and are
// the same however the bytes were split into tokens. A match is the stop string that is complete
// first; of those complete at the same byte, the longest. What could still become a stop string,
// and a code point that lacks bytes, is held back. Not thread-safe.
class TextAssembler {
 public:
  // Empty stop strings are ignored.
  explicit TextAssembler(std::vector<std::string> stops);

  struct Release {
    std::string text;
    // How many of the tokens appended so far and not yet counted belong to the released text, in
    // order. A token counts when its last byte is released or, at a stop, when it began before it.
    std::size_t token_count = 0;
    // Set once: the text ends here. Later calls release nothing.
    std::optional<std::string> stop;
  };

  // Takes the bytes of one more token; they may be empty or part of a code point.
  Release Append(std::string_view piece);

  // The reply ended: releases everything held. Missing bytes of a code point become U+FFFD.
  Release Finish();

  bool stopped() const { return stopped_; }

 private:
  void Decode(std::string_view piece);
  void PlaceWaitingTokens();
  std::optional<Release> TakeStop();
  std::size_t HeldBytes() const;
  Release Take(std::size_t byte_count);

  const std::vector<std::string> stops_;
  std::string incomplete_;              // first bytes of a code point
  std::size_t waiting_tokens_ = 0;      // tokens that end inside `incomplete_`
  std::string held_;                    // valid text, not yet released
  std::size_t released_bytes_ = 0;      // offset of held_ in the whole text
  std::deque<std::size_t> token_ends_;  // offsets in the whole text, of tokens not yet counted
  std::size_t last_counted_end_ = 0;    // where the first token of token_ends_ begins
  bool stopped_ = false;
};

}  // namespace skippy
