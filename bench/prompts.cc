#include "bench/prompts.h"

#include <array>
#include <random>
#include <string>
#include <string_view>

#include "bench/http_client.h"

namespace skippy::bench {
namespace {

constexpr std::array<std::string_view, 24> kSyllables = {
    "ba", "ko", "ri",  "tel", "mon", "sa", "ver", "lu", "pen", "dar", "fi", "os",
    "ga", "ne", "tor", "il",  "ma",  "su", "rek", "do", "van", "hi",  "lo", "ent"};
constexpr std::uint64_t kSyllablesMax = 3;  // of a word

// Every word has at least one token, so this many words are enough.
std::string RandomWords(TokenCount word_count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (TokenCount i = 0; i < word_count; ++i) {
    for (std::uint64_t left = 1 + random() % kSyllablesMax; left > 0; --left) {
      text += kSyllables[random() % kSyllables.size()];
    }
    text += ' ';
  }
  return text;
}

}  // namespace

Result<std::vector<Token>> RandomPrompt(int port, TokenCount token_count, std::uint64_t seed) {
  SKIPPY_ASSIGN_OR_RETURN(
      const Json answer,
      PostJson(port, "/tokenize",
               Json{{"content", RandomWords(token_count, seed)}, {"add_special", true}}));
  auto tokens = answer.value("tokens", std::vector<Token>());
  if (tokens.size() < static_cast<std::size_t>(token_count)) {
    return MakeError(ErrorCode::kInternal, "the prompt has only " + std::to_string(tokens.size()) +
                                               " of " + std::to_string(token_count) + " tokens");
  }
  tokens.resize(static_cast<std::size_t>(token_count));
  return tokens;
}

}  // namespace skippy::bench
