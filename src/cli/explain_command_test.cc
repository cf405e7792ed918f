// Goal: what a server says about a request is readable, and a request that it does not know is a
// failure. Method: scripted answers.
#include "cli/explain_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace skippy {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class ExplainCommandTest : public ::testing::Test {
 protected:
  int Run(int http_status, const std::string& body) {
    std::istringstream in;
    return RunExplain(arguments_, {in, out_, error_, false},
                      [&](const Endpoint& endpoint, const std::string& path,
                          const std::string& api_key) -> Result<EndpointAnswer> {
                        called_ = endpoint.text() + " " + path + " " + api_key;
                        return EndpointAnswer{http_status, body};
                      });
  }

  ExplainArguments arguments_{.request_id = "chatcmpl-1"};
  std::string called_;
  std::ostringstream out_;
  std::ostringstream error_;
};

const char* const kDiverged = R"({"request_id": "chatcmpl-1", "prompt_tokens": 40,
    "prefix": {"reason": "diverged", "meaning": "goes on differently", "ends_at_token": 12,
               "nearest_request": "chatcmpl-0", "common_tokens": 12, "text_before": "It is\n",
               "text_earlier": "Monday", "text_now": "Tuesday", "hint": "a day differs"},
    "timings": {"cached_l1": 0, "cached_l2": 2, "cached_l3": 10, "computed": 28},
    "saved_ms_estimate": 12.4})";

TEST_F(ExplainCommandTest, PrintsTiersReasonAndBothSides) {
  EXPECT_EQ(Run(200, kDiverged), 0);
  EXPECT_EQ(called_, "127.0.0.1:9337 /v1/cache/explain/chatcmpl-1 ");
  EXPECT_EQ(out_.str(),
            "chatcmpl-1: 40 prompt tokens: 0 from memory of the engine, 2 from RAM, 10 from disk, "
            "28 computed\n"
            "diverged: goes on differently\n"
            "nearest: chatcmpl-0, 12 tokens in common\n"
            "both: \"It is\\n\"\nearlier: \"Monday\"\nnow: \"Tuesday\"\n"
            "hint: a day differs\n"
            "saved: about 12 ms\n");
}

TEST_F(ExplainCommandTest, SaysWhatRemovedAPrefixAndWhatChanged) {
  EXPECT_THAT(ExplanationText(Json::parse(R"({"prefix": {"reason": "removed", "meaning": "gone",
                  "removed": {"tokens": 9, "by": "clear", "at": 0}}})")),
              HasSubstr("removed: 9 tokens at 1970-01-01T00:00:00Z by clear\n"));
  EXPECT_THAT(ExplanationText(Json::parse(R"({"prefix": {"reason": "identity_changed",
                  "identity_changed": {"tokens": 9, "changed": [
                      {"field": "type_k", "before": "f16", "now": "q8_0"}]}}})")),
              HasSubstr("changed: type_k: f16 -> q8_0\n"));
}

TEST_F(ExplainCommandTest, PrintsTheWholeReplyOnDemand) {
  arguments_.json = true;
  arguments_.endpoint = "host";
  arguments_.api_key = "secret";
  EXPECT_EQ(Run(200, kDiverged), 0);
  EXPECT_EQ(called_, "host:9337 /v1/cache/explain/chatcmpl-1 secret");
  EXPECT_EQ(Json::parse(out_.str()), Json::parse(kDiverged));
}

TEST_F(ExplainCommandTest, FailsWithoutAnExplanation) {
  EXPECT_NE(Run(404, R"({"error": {"message": "no such request"}})"), 0);
  EXPECT_THAT(error_.str(), HasSubstr("no such request"));
  EXPECT_NE(Run(200, "text"), 0);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(ExplainCommandTest, AsksForNothingThatIsNoId) {
  for (const char* id : {"", "../models", "a b"}) {
    arguments_.request_id = id;
    EXPECT_NE(Run(200, kDiverged), 0) << id;
  }
  EXPECT_EQ(called_, "");
}

}  // namespace
}  // namespace skippy
