// Goal: the route table finds what it should by path, and says which methods a path answers.
#include "serve/router.h"

#include <gtest/gtest.h>

namespace skippy {
namespace {

TEST(RouterTest, MatchesPathsSegmentBySegment) {
  EXPECT_TRUE(PathMatches("/", "/"));
  EXPECT_TRUE(PathMatches("/v1/models", "/v1/models"));
  EXPECT_FALSE(PathMatches("/v1/models", "/v1/models/x"));
  EXPECT_FALSE(PathMatches("/v1/models/x", "/v1/models"));
  EXPECT_FALSE(PathMatches("/v1/models", "/v1/model"));
}

TEST(RouterTest, MatchesAnyNonEmptySegmentForAParameter) {
  EXPECT_TRUE(PathMatches("/v1/models/:model", "/v1/models/demo"));
  EXPECT_FALSE(PathMatches("/v1/models/:model", "/v1/models/"));
  EXPECT_FALSE(PathMatches("/v1/models/:model", "/v1/models/a/b"));
}

TEST(RouterTest, ListsTheMethodsThatAPathAnswers) {
  Router router;
  const auto handler = [](const HttpRequest&) { return HttpResponse(); };
  router.Add({"GET", "/cache", handler});
  router.Add({"POST", "/cache", handler});
  router.Add({"GET", "/other", handler});
  EXPECT_EQ(router.AllowedMethods("/cache"), "GET, POST");
  EXPECT_EQ(router.AllowedMethods("/other"), "GET");
  EXPECT_EQ(router.AllowedMethods("/none"), "");
}

}  // namespace
}  // namespace skippy
