// Goal: the operator's commands ask before they remove, send exactly what was asked for, and fail
// when anything failed. Method: a scripted server and console.
#include "cli/kv_cache_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/kv_cache_text.h"

namespace skippy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;
using Verb = KvCacheArguments::Verb;

Json SampleStatus() {
  return Json::parse(R"({
    "version": 1,
    "configured": {"mode": "fixed", "directory": "/cache", "sources": {"mode": "cli"}},
    "effective": {"state": "degraded", "reason": "storage_unavailable"},
    "usage": {"used_bytes": 1048576, "budget_bytes": 10737418240, "manifests": 2,
              "unique_segments": 5},
    "activity": {"hits": 3, "misses": 1, "last_error": null},
    "inventory": [{"model_identity": "ab", "model_name": "demo", "token_count": 100,
                   "total_bytes": 1024},
                  {"model_identity": "ab", "model_name": "demo", "token_count": 50,
                   "total_bytes": 1024}],
    "inventory_omitted": 0, "engine": {"state": "loading"}})");
}

class KvCacheCommandsTest : public ::testing::Test {
 protected:
  int Run(bool interactive = false, const std::string& typed = "") {
    std::istringstream in(typed);
    const Console console{in, out_, error_, interactive};
    return RunKvCache(arguments_, console,
                      [this](const Endpoint& endpoint, const std::string& method,
                             const std::string& path, const std::string& body) {
                        calls_.push_back(method + " " + path + " " + body);
                        return Answer(endpoint);
                      });
  }
  Result<EndpointAnswer> Answer(const Endpoint& endpoint) {
    const auto found = answers_.find(endpoint.text());
    if (found == answers_.end()) {
      return MakeError(ErrorCode::kUnavailable, "no answer from " + endpoint.text());
    }
    return found->second;
  }
  void Serve(const std::string& endpoint, int http_status, const Json& body) {
    answers_[endpoint] = {http_status, body.dump()};
  }

  KvCacheArguments arguments_;
  std::map<std::string, EndpointAnswer> answers_;
  std::vector<std::string> calls_;
  std::ostringstream out_;
  std::ostringstream error_;
};

// Proves L5.
TEST_F(KvCacheCommandsTest, StatusShowsStateModeRootUsageAndModels) {
  Serve("127.0.0.1:3131", 200, SampleStatus());
  EXPECT_EQ(Run(), 0);
  EXPECT_THAT(calls_, ElementsAre("GET /api/runtime/kv-cache "));
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("degraded: storage_unavailable"), HasSubstr("fixed (cli)"),
                    HasSubstr("/cache"), HasSubstr("1.0 MiB of 10.0 GiB"),
                    HasSubstr("2 manifests, 5 segments"), HasSubstr("3 hits, 1 misses"),
                    HasSubstr("ab  demo: 2 prefixes, 150 tokens, 2.0 KiB")));
}

// Proves L5.
TEST_F(KvCacheCommandsTest, JsonPrintsTheWholePayload) {
  Serve("127.0.0.1:3131", 200, SampleStatus());
  arguments_.json = true;
  EXPECT_EQ(Run(), 0);
  EXPECT_EQ(Json::parse(out_.str()), SampleStatus());
}

// Proves L3.
TEST_F(KvCacheCommandsTest, RemovalNeedsYesWithoutATerminal) {
  arguments_.verb = Verb::kClear;
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("--yes"));
  EXPECT_THAT(calls_, IsEmpty());
}

// Proves L3 and L6.
TEST_F(KvCacheCommandsTest, AnythingButYesCancelsAndIsAFailure) {
  arguments_.verb = Verb::kPrune;
  for (const std::string typed : {"", "\n", "n\n", "no\n", "yess\n"}) {
    EXPECT_NE(Run(true, typed), 0) << typed;
  }
  EXPECT_THAT(calls_, IsEmpty());
  Serve("127.0.0.1:3131", 200, {{"freed_bytes", 4096}, {"status", SampleStatus()}});
  EXPECT_EQ(Run(true, "y\n"), 0);
  EXPECT_THAT(calls_, ElementsAre("POST /api/runtime/kv-cache/prune "));
  EXPECT_THAT(out_.str(), HasSubstr("freed 4.0 KiB, 1.0 MiB of 10.0 GiB used"));
}

// Proves L2 and L4.
TEST_F(KvCacheCommandsTest, TargetAndModelGoIntoTheBody) {
  arguments_.verb = Verb::kPrune;
  arguments_.yes = true;
  arguments_.target = "2GiB";
  arguments_.model_identity = "abc";
  arguments_.port = 4000;
  Serve("127.0.0.1:4000", 200, {{"freed_bytes", 0}});
  EXPECT_EQ(Run(), 0);
  EXPECT_THAT(calls_, ElementsAre("POST /api/runtime/kv-cache/prune "
                                  R"({"target_bytes":2147483648,"model_identity":"abc"})"));
  arguments_.target = "2GB";
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("--target: \"2GB\""));
  EXPECT_EQ(calls_.size(), 1U);
}

// Proves D50.
TEST_F(KvCacheCommandsTest, LimitsSendWhatWasGivenAndNothingElse) {
  arguments_.verb = Verb::kLimits;
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("--kv-cache-disk-budget"));
  arguments_.disk_budget = "2GiB";
  arguments_.minimum_free = "1GB";
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("--kv-cache-min-free: \"1GB\""));
  EXPECT_THAT(calls_, IsEmpty());
  arguments_.minimum_free = "1GiB";
  Serve("127.0.0.1:3131", 200, SampleStatus());
  EXPECT_EQ(Run(), 0);
  arguments_.disk_budget.reset();
  arguments_.minimum_free.reset();
  arguments_.cache_ram_mib = 7;
  EXPECT_EQ(Run(), 0);
  EXPECT_THAT(
      calls_,
      ElementsAre("POST /api/runtime/kv-cache/limits "
                  R"({"disk_budget_bytes":2147483648,"disk_minimum_free_bytes":1073741824})",
                  R"(POST /api/runtime/kv-cache/limits {"cache_ram_mib":7})"));
  EXPECT_THAT(out_.str(), HasSubstr("of 10.0 GiB used"));
}

// Proves L6.
TEST_F(KvCacheCommandsTest, AnErrorOfTheServerIsShownAndFails) {
  arguments_.verb = Verb::kClear;
  arguments_.yes = true;
  Serve("127.0.0.1:3131", 409, {{"error", {{"message", "the disk tier is off"}}}});
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("the disk tier is off"));
  EXPECT_EQ(out_.str(), "");
}

// Proves L10 and M6: one failing node does not hide the others.
TEST_F(KvCacheCommandsTest, OneFailedEndpointFailsTheCall) {
  arguments_.endpoints = {"a:1", "http://b:2/", "[::1]:3"};
  Serve("a:1", 200, SampleStatus());
  Serve("[::1]:3", 200, SampleStatus());
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(out_.str(),
              testing::MatchesRegex("a:1: degraded.*\nb:2: error: .*\n.::1.:3: degraded.*\n"));
  arguments_.endpoints = {"a:0"};
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("--endpoint: \"a:0\""));
}

TEST_F(KvCacheCommandsTest, AnAnswerThatIsNoJsonFails) {
  answers_["127.0.0.1:3131"] = {200, "<html>"};
  EXPECT_NE(Run(), 0);
  answers_["127.0.0.1:3131"] = {502, "<html>"};
  EXPECT_NE(Run(), 0);
  EXPECT_THAT(error_.str(), HasSubstr("HTTP status 502"));
}

}  // namespace
}  // namespace skippy
