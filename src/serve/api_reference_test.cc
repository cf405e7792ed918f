// Goal: docs/http_api.md is what the field tables say.
#include "serve/api_reference.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace skippy {
namespace {

TEST(ApiReferenceTest, IsTheCommittedPage) {
  const std::filesystem::path page =
      std::filesystem::path(__FILE__).parent_path() / ".." / ".." / "docs" / "http_api.md";
  if (std::getenv("SKIPPY_UPDATE_DOCS") != nullptr) {
    std::ofstream(page) << ApiReferenceMarkdown();
  }
  std::ifstream file(page);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), ApiReferenceMarkdown())
      << "run: SKIPPY_UPDATE_DOCS=1 serve_test --gtest_filter='ApiReference*'";
}

}  // namespace
}  // namespace skippy
