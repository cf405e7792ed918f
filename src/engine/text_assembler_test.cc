// Goal: what a client sees of a reply is the same however the model's bytes were split into tokens,
// shows nothing of a stop string and loses nothing when none came (public case L3).
// Method: feed pieces, join the releases; then every split of a text against the unsplit one.
#include "engine/text_assembler.h"

#include <gtest/gtest.h>

#include <random>

namespace skippy {
namespace {

struct Shown {
  std::string text;
  std::size_t tokens = 0;
  std::string stop;
  bool operator==(const Shown&) const = default;
};

Shown Show(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  TextAssembler assembler(std::move(stops));
  Shown shown;
  const auto add = [&shown](const TextAssembler::Release& release) {
    shown.text += release.text;
    shown.tokens += release.token_count;
    if (release.stop) shown.stop = *release.stop;
  };
  for (const std::string& piece : pieces) {
    if (assembler.stopped()) break;
    add(assembler.Append(piece));
  }
  add(assembler.Finish());
  return shown;
}

// Proves case L3: held text that turns out to be no stop string is not lost.
TEST(TextAssemblerTest, ReleasesHeldTextWhenTheReplyEndsWithoutAStop) {
  const Shown shown = Show({"TRE\nAAAA"}, {"UNO", " DUE", " T", "RE", "\nAA"});
  EXPECT_EQ(shown.text, "UNO DUE TRE\nAA");
  EXPECT_EQ(shown.tokens, 5U);
  EXPECT_EQ(shown.stop, "");
}

// Proves case L3: nothing that could still become a stop string is shown.
TEST(TextAssemblerTest, HoldsBackTheBeginningOfAStop) {
  TextAssembler assembler({"TRE\nAAAA"});
  EXPECT_EQ(assembler.Append("UNO DUE TR").text, "UNO DUE ");
  EXPECT_EQ(assembler.Append("E").text, "");
  EXPECT_EQ(assembler.Append(" fine").text, "TRE fine");
}

// Proves case L3.
TEST(TextAssemblerTest, CutsAtAStopThatSpansThreeTokens) {
  const Shown shown = Show({"DEFGHIJ"}, {"AB", "C", "DEF", "GH", "IJK", "LMN"});
  EXPECT_EQ(shown, (Shown{"ABC", 2, "DEFGHIJ"}));
}

TEST(TextAssemblerTest, CountsTheTokenThatAStopBeginsIn) {
  EXPECT_EQ(Show({"DEF"}, {"AB", "CD", "EF"}), (Shown{"ABC", 2, "DEF"}));
  EXPECT_EQ(Show({"CD"}, {"AB", "CD", "EF"}), (Shown{"AB", 1, "CD"}));
}

// Proves case L3: several stops, one a prefix of another.
TEST(TextAssemblerTest, TakesTheStopThatIsCompleteFirst) {
  EXPECT_EQ(Show({"ENDING", "END"}, {"the ENDING"}), (Shown{"the ", 1, "END"}));
  EXPECT_EQ(Show({"ENDING", "END"}, {"the E", "N", "DI", "NG"}), (Shown{"the ", 1, "END"}));
  EXPECT_EQ(Show({"bc", "abc"}, {"xabc"}).stop, "abc");
  EXPECT_EQ(Show({"bc", "abcd"}, {"xabcd"}), (Shown{"xa", 1, "bc"}));
  EXPECT_EQ(Show({"bc", "abcd"}, {"x", "a", "b", "c", "d"}), (Shown{"xa", 2, "bc"}));
}

TEST(TextAssemblerTest, FindsAStopAfterAFalseStart) {
  EXPECT_EQ(Show({"aab"}, {"a", "a", "a", "b"}), (Shown{"a", 1, "aab"}));
  EXPECT_EQ(Show({"\n\n"}, {"one\n", "two\n", "\n"}), (Shown{"one\ntwo", 2, "\n\n"}));
}

// Proves case L3: a stop with an emoji, split inside its bytes.
TEST(TextAssemblerTest, CutsAtAnEmojiSplitBetweenTokens) {
  const std::vector<std::string> pieces = {"ok ", "\xF0\x9F", "\x9A", "\x80", " more"};
  EXPECT_EQ(Show({"\xF0\x9F\x9A\x80"}, pieces), (Shown{"ok ", 1, "\xF0\x9F\x9A\x80"}));
  EXPECT_EQ(Show({}, pieces), (Shown{"ok \xF0\x9F\x9A\x80 more", 5, ""}));
}

TEST(TextAssemblerTest, NeverSplitsACodePoint) {
  TextAssembler assembler({});
  EXPECT_EQ(assembler.Append("a\xC3").text, "a");
  const TextAssembler::Release release = assembler.Append("\xA4\xE2\x82");
  EXPECT_EQ(release.text, "\xC3\xA4");
  EXPECT_EQ(release.token_count, 1U);
  EXPECT_EQ(assembler.Append("\xAC").token_count, 2U);
}

TEST(TextAssemblerTest, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(Show({}, {"a\xFF", "b"}).text,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(Show({}, {"a\xE2\x82"}), (Shown{"a\xEF\xBF\xBD", 1, ""}));
  EXPECT_EQ(Show({}, {"\xE2\x82", "x"}).text, "\xEF\xBF\xBDx");
  EXPECT_EQ(Show({}, {"\xED\xA0\x80"}).text, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextAssemblerTest, IgnoresEmptyStopsAndCountsEmptyPieces) {
  EXPECT_EQ(Show({""}, {"a", "", "b"}), (Shown{"ab", 3, ""}));
  EXPECT_EQ(Show({"b"}, {"a", "", "b"}), (Shown{"a", 2, "b"}));
}

TEST(TextAssemblerTest, ReleasesNothingAfterAStop) {
  TextAssembler assembler({"x"});
  EXPECT_TRUE(assembler.Append("ax").stop.has_value());
  EXPECT_EQ(assembler.Append("bc").text, "");
  EXPECT_EQ(assembler.Finish().text, "");
}

// Proves case L3: joined stream = text of the whole, for every way to cut the same bytes.
TEST(TextAssemblerTest, ShowsTheSameForEverySplit) {
  const std::uint32_t seed = 20240917;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> atoms = {"a",        "b",   "ab", "\xC3\xA4", "\xF0\x9F\x9A\x80",
                                          "\xE2\x82", "\xFF"};
  for (int round = 0; round < 2000; ++round) {
    std::string whole;
    for (int i = 0; i < 12; ++i) whole += atoms[random() % atoms.size()];
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < whole.size();) {
      const std::size_t n = 1 + random() % 4;
      pieces.push_back(whole.substr(at, n));
      at += n;
    }
    const std::vector<std::string> stops = {"abab", "ba\xC3\xA4", "aab",
                                            "\xF0\x9F\x9A\x80"
                                            "b"};
    const Shown split = Show(stops, pieces);
    const Shown unsplit = Show(stops, {whole});
    ASSERT_EQ(split.text, unsplit.text);
    ASSERT_EQ(split.stop, unsplit.stop);
    for (const std::string& stop : stops) ASSERT_EQ(split.text.find(stop), std::string::npos);
    if (split.stop.empty()) {
      ASSERT_EQ(split.tokens, pieces.size());
    }
  }
}

}  // namespace
}  // namespace skippy
