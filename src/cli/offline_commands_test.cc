// Goal: the verbs for a stopped store say what is there and end with the right status. Method: real
// small stores in memory, text in and out.
#include "cli/offline_commands.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cache/cache_test_util.h"
#include "cli/command_line.h"

namespace skippy {
namespace {

class OfflineCommandsTest : public CacheFixture {
 protected:
  OfflineCommandsTest() {
    Open();
    RecordDurably(MakePath(1, 300));
    cache_.reset();
    arguments_.directory = options_.disk.directory;
  }
  int Run(OfflineArguments::Verb verb, bool interactive = false) {
    arguments_.verb = verb;
    out_.str("");
    error_.str("");
    return RunOffline(arguments_, Console{in_, out_, error_, interactive}, env_);
  }
  void Damage() {
    const std::string packs = options_.disk.directory + "/packs/";
    const std::string name = env_->ListDirectory(packs.substr(0, packs.size() - 1)).value().at(0);
    auto file = std::move(env_->OpenFile(packs + name, {.writable = true}).value());
    const std::vector<std::byte> junk(16, std::byte{0xa5});
    ASSERT_TRUE(file->WriteAt(4096 + 100, junk));
  }

  OfflineArguments arguments_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream error_;
};

using Verb = OfflineArguments::Verb;

TEST_F(OfflineCommandsTest, VerifiesASoundStore) {
  EXPECT_EQ(Run(Verb::kVerify), 0) << error_.str();
  EXPECT_NE(out_.str().find("1 prefixes, 2 segments"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("no damage found"), std::string::npos);
  arguments_.json = true;
  EXPECT_EQ(Run(Verb::kVerify), 0);
  EXPECT_NE(out_.str().find("\"clean\": true"), std::string::npos) << out_.str();
}

TEST_F(OfflineCommandsTest, FailsForADamagedStoreUntilItIsRepaired) {
  Damage();
  EXPECT_EQ(Run(Verb::kVerify), kExitFailed);
  EXPECT_NE(out_.str().find("segment 1: its bytes"), std::string::npos) << out_.str();
  EXPECT_EQ(Run(Verb::kRepair), kExitFailed);  // nobody agreed
  arguments_.yes = true;
  EXPECT_EQ(Run(Verb::kRepair), 0) << error_.str();
  EXPECT_EQ(Run(Verb::kVerify), 0);
}

TEST_F(OfflineCommandsTest, ShowsProgressAndRefusesABadRate) {
  arguments_.show_progress = true;
  EXPECT_EQ(Run(Verb::kVerify), 0);
  EXPECT_NE(error_.str().find("(100 %)"), std::string::npos) << error_.str();
  arguments_.rate = "fast";
  EXPECT_EQ(Run(Verb::kVerify), kExitUsage);
}

TEST_F(OfflineCommandsTest, InspectsByModelAndNamespace) {
  EXPECT_EQ(Run(Verb::kInspect), 0);
  EXPECT_NE(out_.str().find("model-1"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("up to 300 tokens; 2 segments"), std::string::npos) << out_.str();
  arguments_.directory = "/nowhere";
  EXPECT_EQ(Run(Verb::kInspect), kExitFailed);
}

}  // namespace
}  // namespace skippy
