// Goal: the flags of `serve` are llama-server's spellings, and every mistake on the command line is
// one line and an exit status that is not 0. Method: the real parser, without serving.
#include "cli/serve_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/command_line.h"
#include "control/option_table.h"

namespace skippy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GivenFlags Parse(std::vector<std::string> arguments) {
  CLI::App app;
  GivenFlags given;
  AddServeFlags(app, &given);
  NormalizeFlagSpellings(&arguments);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return given;
}

struct Ended {
  int exit_status = 0;
  std::string error;
};

Ended RunProgram(const std::vector<std::string>& arguments) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Ended out;
  out.exit_status = RunCommandLine(arguments);
  testing::internal::GetCapturedStdout();
  out.error = testing::internal::GetCapturedStderr();
  return out;
}

TEST(ServeFlagsTest, ShortSpellingsOfSeveralLettersWork) {
  const GivenFlags given =
      Parse({"-m",   "a.gguf", "-c",  "4096", "-np", "8",   "-ngl=99", "-fa", "on", "-ctk", "q8_0",
             "-ctv", "f16",    "-ub", "256",  "-b",  "512", "-tb",     "2",   "-t", "-1"});
  EXPECT_THAT(given.at("model"), ElementsAre("a.gguf"));
  EXPECT_THAT(given.at("ctx_size"), ElementsAre("4096"));
  EXPECT_THAT(given.at("parallel"), ElementsAre("8"));
  EXPECT_THAT(given.at("gpu_layers"), ElementsAre("99"));
  EXPECT_THAT(given.at("flash_attention"), ElementsAre("on"));
  EXPECT_THAT(given.at("cache_type_k"), ElementsAre("q8_0"));
  EXPECT_THAT(given.at("cache_type_v"), ElementsAre("f16"));
  EXPECT_THAT(given.at("ubatch_size"), ElementsAre("256"));
  EXPECT_THAT(given.at("batch_size"), ElementsAre("512"));
  EXPECT_THAT(given.at("threads_batch"), ElementsAre("2"));
  EXPECT_THAT(given.at("threads"), ElementsAre("-1"));
}

TEST(ServeFlagsTest, EveryRowWithAFlagIsParsed) {
  for (const OptionSpec& spec : OptionTable()) {
    if (spec.long_flag.empty()) {
      continue;
    }
    const bool is_switch = spec.type == OptionType::kSwitch;
    std::vector<std::string> arguments{std::string(spec.long_flag)};
    if (!is_switch) {
      arguments.emplace_back("some value");
    }
    EXPECT_THAT(Parse(arguments).at(std::string(spec.name)),
                ElementsAre(is_switch ? "true" : "some value"))
        << spec.name;
  }
}

TEST(ServeFlagsTest, RepeatedFlagsKeepTheirOrder) {
  EXPECT_THAT(Parse({"--lora", "a", "--lora", "b", "--port", "1", "--port", "2"}).at("lora"),
              ElementsAre("a", "b"));
}

TEST(CommandLineTest, MistakesAreOneLineThatNamesTheFlag) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "subcommand"},
      {{"serve"}, "--model"},
      {{"serve", "-m", "a.gguf", "--no-such-flag"}, "--no-such-flag"},
      {{"serve", "-m", "a.gguf", "--port"}, "--port"},
      {{"serve", "-m", "a.gguf", "--port", "70000"}, "\"70000\""},
      {{"serve", "-m", "a.gguf", "--kv-cache-disk", "10GB"}, "--kv-cache-disk: \"10GB\""},
      {{"serve", "-m", "a.gguf", "--kv-cache-disk", ""}, "--kv-cache-disk"},
      {{"serve", "-m", "a.gguf", "--kv-cache-disk-dir", "here"}, "--kv-cache-disk-dir"},
      {{"serve", "-m", "a.gguf", "--management-host", "0.0.0.0"}, "--management-host"},
      {{"kv-cache"}, "subcommand"},
      {{"kv-cache", "prune", "--yes", "--target", "5"}, "--target"},
      {{"kv-cache", "clear", "--target", "5GiB"}, "--target"},
      {{"bench", "no-such-benchmark"}, "no-such-benchmark"}};
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Ended ended = RunProgram(arguments);
    EXPECT_NE(ended.exit_status, 0);
    EXPECT_THAT(ended.error, AllOf(HasSubstr("skippy: "), HasSubstr(expected)));
    EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 1) << ended.error;
  }
}

TEST(CommandLineTest, VersionAndOptionsSucceed) {
  EXPECT_EQ(RunProgram({"version"}).exit_status, 0);
  EXPECT_EQ(RunProgram({"--version"}).exit_status, 0);
  EXPECT_EQ(RunProgram({"options", "--markdown"}).exit_status, 0);
  EXPECT_EQ(RunProgram({"bench", "--list"}).exit_status, 0);
  EXPECT_EQ(RunProgram({"serve", "--help"}).exit_status, 0);
}

}  // namespace
}  // namespace skippy
