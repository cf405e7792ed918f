// Goal: a model's files are found, or the one that is missing is named. Method: the in-memory Env,
// and the bundled model for what is read from a header.
#include "engine/gguf_files.h"

#include <gtest/gtest.h>

#include "engine/test_model.h"
#include "env/memory_env.h"

namespace skippy {
namespace {

class GgufFilesTest : public testing::Test {
 protected:
  GgufFilesTest() { env_.CreateDirectories("/models"); }

  void Create(const std::string& path) {
    OpenOptions options;
    options.create = options.writable = true;
    ASSERT_TRUE(env_.OpenFile(path, options).has_value());
  }

  MemoryEnv env_;
};

TEST_F(GgufFilesTest, OneFileIsItself) {
  Create("/models/a.gguf");
  EXPECT_EQ(ListModelFiles(&env_, "/models/a.gguf").value(),
            std::vector<std::string>{"/models/a.gguf"});
}

TEST_F(GgufFilesTest, ListsAllShardsInOrder) {
  for (const char* index : {"00003", "00001", "00002"}) {
    Create(std::string("/models/big-") + index + "-of-00003.gguf");
  }
  const std::vector<std::string> expected = {"/models/big-00001-of-00003.gguf",
                                             "/models/big-00002-of-00003.gguf",
                                             "/models/big-00003-of-00003.gguf"};
  EXPECT_EQ(ListModelFiles(&env_, expected[0]).value(), expected);
}

TEST_F(GgufFilesTest, NamesTheMissingShard) {
  Create("/models/big-00001-of-00002.gguf");
  const auto files = ListModelFiles(&env_, "/models/big-00001-of-00002.gguf");
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code, ErrorCode::kNotFound);
  EXPECT_NE(files.error().text.find("big-00002-of-00002.gguf"), std::string::npos);
}

TEST_F(GgufFilesTest, WantsTheFirstShard) {
  Create("/models/big-00002-of-00002.gguf");
  const auto files = ListModelFiles(&env_, "/models/big-00002-of-00002.gguf");
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(files.error().text.find("big-00001-of-00002.gguf"), std::string::npos);
}

TEST_F(GgufFilesTest, NamesThatOnlyLookLikeShardsAreOneFile) {
  for (const char* name : {"/models/a-0001-of-0002.gguf", "/models/a-00003-of-00002.gguf",
                           "/models/-00001-of-00002.gguf.bak"}) {
    Create(name);
    EXPECT_EQ(ListModelFiles(&env_, name).value(), std::vector<std::string>{name});
  }
}

TEST_F(GgufFilesTest, ADirectoryIsNoModel) {
  EXPECT_EQ(ListModelFiles(&env_, "/models").error().code, ErrorCode::kInvalidArgument);
}

TEST_F(GgufFilesTest, ReadsTensorNames) {
  const RopeTensors tensors = ReadRopeTensors({DemoModelPath()}).value();
  EXPECT_FALSE(tensors.has_long_short_factors);
  EXPECT_EQ(ReadRopeTensors({"/nowhere.gguf"}).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skippy
