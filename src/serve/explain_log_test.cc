// Goal: an explanation says what really happened to a prompt's prefix. Method: the server over the
// fake engine, where a token is a byte.
#include "serve/explain_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "serve/server_test_fixture.h"
#include "serve/volatile_word.h"

namespace skippy {
namespace {

using testing::HttpReply;

class ExplainTest : public ServerTest {
 protected:
  // The explanation of asking `prompt`.
  Json Explain(const std::string& prompt, const Json& fields = Json::object()) {
    const HttpReply reply = Client().Post(kCompletionsPath, Completion(prompt, fields));
    EXPECT_EQ(reply.status, 200) << reply.body;
    const std::string id = reply.header("X-Request-Id");
    const HttpReply explained = Client().Get("/v1/cache/explain/" + id);
    EXPECT_EQ(explained.status, 200) << explained.body;
    EXPECT_EQ(explained.json()["request_id"], id);
    return explained.json();
  }
  std::string Reason(const std::string& prompt, const Json& fields = Json::object()) {
    return Explain(prompt, fields)["prefix"]["reason"];
  }
};

TEST_F(ExplainTest, SaysWhyAPrefixEnded) {
  Start();
  EXPECT_EQ(Reason("first prompt"), "never_seen");
  EXPECT_EQ(Reason("first prompt"), "complete");
  EXPECT_EQ(Reason("first prompt and more"), "new_text");
  EXPECT_EQ(Reason("first attempt"), "diverged");
  EXPECT_EQ(Reason("first prompt", {{"cache_prompt", false}}), "not_asked");
  EXPECT_EQ(Reason("first prompt", {{"cache_salt", "other"}}), "never_seen");
}

TEST_F(ExplainTest, ShowsBothSidesOfADivergence) {
  Start();
  Explain("It is 2026-11-30 10:15. Be brief.");
  const Json prefix = Explain("It is 2026-12-01 10:15. Be brief.")["prefix"];
  EXPECT_EQ(prefix["common_tokens"], 12);
  EXPECT_EQ(prefix["ends_at_token"], 12);
  EXPECT_EQ(prefix["text_before"], "It is 2026-1");
  EXPECT_EQ(prefix["text_earlier"], "1-30 10:15. Be brief.");
  EXPECT_EQ(prefix["text_now"], "2-01 10:15. Be brief.");
  EXPECT_NE(prefix["hint"].get<std::string>().find("a date differs"), std::string::npos);
}

TEST_F(ExplainTest, ReportsTiersAndMilliseconds) {
  Start();
  Explain("some prompt");
  engine_->SetCachedTier(3);
  const Json timings = Explain("some prompt")["timings"];
  EXPECT_EQ(timings["cached_l3"], 10);
  EXPECT_EQ(timings["computed"], 1);
  EXPECT_TRUE(timings.contains("restore_ms"));
}

TEST_F(ExplainTest, QuotesNothingWhenAskedNotTo) {
  ServerOptions options;
  options.explain_text = false;
  Start({}, options);
  Explain("secret one");
  const Json explanation = Explain("secret two");
  EXPECT_EQ(explanation["prefix"]["reason"], "diverged");
  EXPECT_EQ(explanation.dump().find("secret"), std::string::npos);
}

TEST_F(ExplainTest, KnowsOnlyTheLastRequests) {
  Start();
  EXPECT_EQ(Client().Get("/v1/cache/explain/cmpl-0").status, 404);
  ExplainLog log(true);
  for (std::size_t i = 0; i <= ExplainLog::kRequestsMax; ++i) {
    FinishedRequest request;
    request.comparison = log.Compare({std::to_string(i), "", {1, 2}});
    log.Remember(request, engine_->chat());
  }
  EXPECT_FALSE(log.Find("0"));
  EXPECT_TRUE(log.Find("1"));
}

TEST_F(ExplainTest, SaysWhenComputingWasFasterAndWhenTooLittleIsInCommon) {
  ExplainLog log(true);
  std::vector<Token> tokens(100, 'a');
  log.Compare({"first", "", tokens});
  const auto explain = [&](const std::string& id, TokenCount declined) {
    FinishedRequest request;
    request.comparison = log.Compare({id, "", tokens});
    request.timings.declined_tokens = declined;
    log.Remember(request, engine_->chat());
    return log.Find(id)->body["prefix"];
  };
  const Json declined = explain("declined", 99);
  EXPECT_EQ(declined["reason"], "recompute_faster");
  EXPECT_EQ(declined["declined_tokens"], 99);
  tokens.assign(100, 'b');
  std::fill_n(tokens.begin(), 20, 'a');
  EXPECT_EQ(explain("short", 0)["reason"], "below_minimum");
}

TEST(VolatileWordTest, KnowsWhatChangesByItsLook) {
  EXPECT_EQ(VolatileKind("2026-11-30"), "date");
  EXPECT_EQ(VolatileKind("2026-11-30T10:15:00Z"), "date and time");
  EXPECT_EQ(VolatileKind("9:07"), "time");
  EXPECT_EQ(VolatileKind("123e4567-e89b-12d3-a456-426614174000"), "uuid");
  EXPECT_EQ(VolatileKind("17"), "number");
  EXPECT_EQ(VolatileKind("deadbeef01"), "hexadecimal id");
  for (const char* word : {"", "word", "feedback", "v2", "path/file.txt"}) {
    EXPECT_EQ(VolatileKind(word), "") << word;
  }
}

TEST(VolatileWordTest, FindsTheWordAroundAPosition) {
  EXPECT_EQ(WordAt("at 10:15. Next", 5), "10:15");
  EXPECT_EQ(WordAt("at 10:15. Next", 3), "10:15");
  EXPECT_EQ(WordAt("", 9), "");
}

}  // namespace
}  // namespace skippy
