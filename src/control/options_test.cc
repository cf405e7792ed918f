// Goal: every option resolves by the documented precedence, with its source, and every bad value is
// refused with one line that names setting, value and expectation. Method: inputs as plain values,
// no process environment.
#include "control/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "control/byte_size.h"
#include "control/option_table.h"

namespace skippy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    inputs_.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::optional(found->second);
    };
    environment_["HOME"] = "/home/somebody";
  }
  ~OptionsTest() override {
    if (!config_path_.empty()) {
      std::filesystem::remove(config_path_);
    }
  }

  void Flag(const std::string& name, const std::string& value) {
    inputs_.cli.emplace_back(name, value);
  }
  void Environment(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }
  void File(const std::string& text) {
    config_path_ = std::filesystem::temp_directory_path() /
                   ("skippy_options_test_" + std::to_string(getpid()) + ".toml");
    std::ofstream(config_path_) << text;
    Flag("config", config_path_.string());
  }

  ServeConfiguration Resolved() {
    auto out = ResolveOptions(inputs_);
    EXPECT_TRUE(out) << out.error().text;
    return out ? *out : ServeConfiguration{};
  }
  std::string Refusal() {
    const auto out = ResolveOptions(inputs_);
    EXPECT_FALSE(out);
    const std::string text = out ? "" : out.error().text;
    EXPECT_THAT(text, Not(HasSubstr("\n")));
    return text;
  }

  OptionInputs inputs_;
  std::map<std::string, std::string> environment_;
  std::filesystem::path config_path_;
};

// Proves J2, J4.
TEST_F(OptionsTest, DefaultsAreThoseOfTheContract) {
  const ServeConfiguration out = Resolved();
  EXPECT_EQ(out.disk.options.mode, DiskMode::kOff);
  EXPECT_EQ(out.disk.options.minimum_free_bytes, 16 * kGiB);
  EXPECT_EQ(out.disk.options.directory, "/home/somebody/.skippy/kv-cache");
  EXPECT_EQ(out.disk.mode_source, OptionSource::kDefault);
  EXPECT_EQ(out.listen.host, "127.0.0.1");
  EXPECT_EQ(out.listen.port, 9337);
  EXPECT_EQ(out.management.port, 3131);
  EXPECT_EQ(out.engine.cache_type_source, "default");
  EXPECT_TRUE(out.warnings.empty());
}

// Proves J3 and J4: each field by itself.
TEST_F(OptionsTest, EachFieldTakesItsHighestSource) {
  File(
      "[runtime.kv_cache.disk]\nmode = \"fixed\"\nbudget_mib = 2048\ndirectory = \"/file\"\n"
      "minimum_free_mib = 4096\n");
  Environment("SKIPPY_KV_CACHE_DISK_DIR", "/environment");
  Flag("kv_cache_min_free", "3GiB");
  const DiskConfiguration disk = Resolved().disk;
  EXPECT_EQ(disk.options.mode, DiskMode::kFixed);
  EXPECT_EQ(disk.mode_source, OptionSource::kConfig);
  EXPECT_EQ(disk.options.budget_bytes, 2 * kGiB);
  EXPECT_EQ(disk.budget_source, OptionSource::kConfig);
  EXPECT_EQ(disk.options.directory, "/environment");
  EXPECT_EQ(disk.directory_source, OptionSource::kEnvironment);
  EXPECT_EQ(disk.options.minimum_free_bytes, 3 * kGiB);
  EXPECT_EQ(disk.minimum_free_source, OptionSource::kCli);
}

TEST_F(OptionsTest, CommandLineBeatsEnvironmentBeatsFile) {
  File("[runtime.kv_cache.disk]\nmode = \"fixed\"\nbudget_mib = 100\n");
  Environment("SKIPPY_KV_CACHE_DISK", "2GiB");
  EXPECT_EQ(Resolved().disk.options.budget_bytes, 2 * kGiB);
  EXPECT_EQ(Resolved().disk.budget_source, OptionSource::kEnvironment);
  Flag("kv_cache_disk", "10GiB");
  EXPECT_EQ(Resolved().disk.options.budget_bytes, 10737418240U);
  EXPECT_EQ(Resolved().disk.mode_source, OptionSource::kCli);
}

TEST_F(OptionsTest, OffOnTheCommandLineOverridesAFixedBudgetInTheFile) {
  File("[runtime.kv_cache.disk]\nmode = \"fixed\"\nbudget_mib = 100\n");
  Flag("kv_cache_disk", "off");
  const DiskConfiguration disk = Resolved().disk;
  EXPECT_EQ(disk.options.mode, DiskMode::kOff);
  EXPECT_EQ(disk.options.budget_bytes, 0U);
  EXPECT_EQ(disk.budget_source, OptionSource::kDefault);
}

// Proves J5 and public case M1.
TEST_F(OptionsTest, SizesOutsideTheGrammarAreRefusedByEverySource) {
  for (const std::string value : {"10GB",
                                  "10 GiB",
                                  "10gib",
                                  "10G",
                                  "10g",
                                  "1.5GiB",
                                  "10485760",
                                  "0",
                                  "-1",
                                  "",
                                  " ",
                                  "10XB",
                                  "10GiBB",
                                  "0x10",
                                  "1e3",
                                  "99999999999999999999",
                                  "20000000TiB",
                                  "99999999999999999999GiB",
                                  "10\xD9\xA0GiB",
                                  "0GiB",
                                  "-1GiB",
                                  "+1GiB",
                                  "GiB",
                                  "010GiB",
                                  "10GiB ",
                                  " 10GiB",
                                  "100%",
                                  "8388608TiB",
                                  "fixed",
                                  "on"}) {
    SCOPED_TRACE(value);
    EXPECT_FALSE(ParseByteSize(value));
    Flag("kv_cache_disk", value);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("--kv-cache-disk: "), HasSubstr(QuoteForMessage(value)),
                                 HasSubstr("KiB, MiB, GiB or TiB")));
    inputs_.cli.clear();
    Environment("SKIPPY_KV_CACHE_MIN_FREE", value);
    EXPECT_THAT(Refusal(),
                AllOf(HasSubstr("SKIPPY_KV_CACHE_MIN_FREE: "), HasSubstr(QuoteForMessage(value))));
    environment_.erase("SKIPPY_KV_CACHE_MIN_FREE");
  }
}

TEST_F(OptionsTest, SizesOfTheGrammarAreExact) {
  EXPECT_EQ(ParseByteSize("1KiB"), 1024U);
  EXPECT_EQ(ParseByteSize("10GiB"), 10737418240U);
  EXPECT_EQ(ParseByteSize("8388607TiB"), 8388607ULL << 40);
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatByteSize(10 * kGiB), "10.0 GiB");
}

// Proves J6.
TEST_F(OptionsTest, FixedInTheFileNeedsABudget) {
  File("[runtime.kv_cache.disk]\nmode = \"fixed\"\n");
  EXPECT_THAT(Refusal(), HasSubstr("runtime.kv_cache.disk.budget_mib"));
}

// Proves J6.
TEST_F(OptionsTest, ABudgetUnderOffOrAutoIsRefused) {
  File("[runtime.kv_cache.disk]\nmode = \"auto\"\nbudget_mib = 5\n");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("budget_mib"), HasSubstr("\"auto\"")));
  inputs_.cli.clear();
  File("[runtime.kv_cache.disk]\nbudget_mib = 5\n");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("budget_mib"), HasSubstr("\"off\"")));
}

// Proves J6 and J7.
TEST_F(OptionsTest, DirectoriesMustBeAbsolute) {
  for (const std::string value : {"cache", "./cache", "C:\\cache", ""}) {
    Flag("kv_cache_disk_dir", value);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("--kv-cache-disk-dir"), HasSubstr("absolute")));
    inputs_.cli.clear();
  }
  Environment("SKIPPY_HOME", "relative/home");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("SKIPPY_HOME"), HasSubstr("\"relative/home\"")));
}

// Proves J6.
TEST_F(OptionsTest, AReserveBelowOneGiBIsRefused) {
  Flag("kv_cache_min_free", "1023MiB");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("--kv-cache-min-free"), HasSubstr("at least 1024MiB")));
  inputs_.cli.clear();
  File("[runtime.kv_cache.disk]\nminimum_free_mib = 1023\n");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("minimum_free_mib"), HasSubstr("at least 1024")));
}

// Proves J6.
TEST_F(OptionsTest, VariablesMustBeUtf8) {
  Environment("SKIPPY_KV_CACHE_DISK_DIR", "/cache\xFF");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("SKIPPY_KV_CACHE_DISK_DIR"), HasSubstr("UTF-8")));
}

TEST_F(OptionsTest, SkippyHomeGivesTheDefaultDirectory) {
  Environment("SKIPPY_HOME", "/srv/skippy");
  Flag("kv_cache_disk", "auto");
  const ServeConfiguration out = Resolved();
  EXPECT_EQ(out.disk.options.directory, "/srv/skippy/kv-cache");
  EXPECT_EQ(out.disk.directory_source, OptionSource::kDefault);
  EXPECT_EQ(out.engine.digest_memo_directory, "/srv/skippy/digests");
}

// Proves J8.
TEST_F(OptionsTest, TheLegacyDirectoryImpliesAFixedBudgetOf32GiB) {
  Environment("SKIPPY_L3_DIR", "/old");
  const ServeConfiguration out = Resolved();
  EXPECT_EQ(out.disk.options.mode, DiskMode::kFixed);
  EXPECT_EQ(out.disk.options.budget_bytes, 32 * kGiB);
  EXPECT_EQ(out.disk.options.directory, "/old");
  EXPECT_EQ(out.disk.mode_source, OptionSource::kLegacyEnvironment);
  EXPECT_EQ(out.disk.directory_source, OptionSource::kLegacyEnvironment);
  EXPECT_THAT(out.warnings, testing::ElementsAre(HasSubstr("deprecated")));
}

// Proves J8: per field, and only where no public source spoke.
TEST_F(OptionsTest, PublicSourcesBeatLegacyVariablesFieldByField) {
  Environment("SKIPPY_L3_DIR", "/old");
  Environment("SKIPPY_L3_BUDGET_BYTES", "12345");
  Environment("SKIPPY_KV_CACHE_DISK", "1GiB");
  ServeConfiguration out = Resolved();
  EXPECT_EQ(out.disk.options.budget_bytes, kGiB);
  EXPECT_EQ(out.disk.options.directory, "/old");
  Environment("SKIPPY_KV_CACHE_DISK_DIR", "/new");
  out = Resolved();
  EXPECT_EQ(out.disk.options.directory, "/new");
  EXPECT_TRUE(out.warnings.empty());
}

// Proves J9.
TEST_F(OptionsTest, TheLegacyBudgetIsNeverUnbounded) {
  Environment("SKIPPY_L3_DIR", "/old");
  Environment("SKIPPY_L3_BUDGET_BYTES", "0");
  EXPECT_EQ(Resolved().disk.options.budget_bytes, 32 * kGiB);
  EXPECT_EQ(Resolved().warnings.size(), 2U);
  Environment("SKIPPY_L3_BUDGET_BYTES", "many");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("SKIPPY_L3_BUDGET_BYTES"), HasSubstr("\"many\"")));
  environment_.erase("SKIPPY_L3_DIR");
  EXPECT_EQ(Resolved().disk.options.mode, DiskMode::kOff);
  EXPECT_THAT(Resolved().warnings, testing::ElementsAre(HasSubstr("ignored")));
}

TEST_F(OptionsTest, UnknownKeysAndWrongTypesInTheFileAreRefused) {
  File("[runtime.kv_cache.disk]\nmod = \"off\"\n");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("runtime.kv_cache.disk.mod: unknown key"), HasSubstr("line 2")));
  inputs_.cli.clear();
  File("[server]\nport = \"9337\"\n");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("server.port"), HasSubstr("wrong type")));
  inputs_.cli.clear();
  File("[server\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 1"));
}

TEST_F(OptionsTest, AMissingConfigurationFileIsRefused) {
  Flag("config", "/nonexistent/skippy.toml");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("--config"), HasSubstr("No such file")));
}

TEST_F(OptionsTest, EngineOptionsKeepTheMeaningOfTheirFlags) {
  Flag("ctx_size", "4096");
  Flag("threads", "-1");
  Flag("parallel", "8");
  Flag("gpu_layers", "all");
  Flag("flash_attention", "on");
  Flag("cache_type_k", "q8_0");
  Flag("lora", "a.gguf,b.gguf");
  Flag("lora_scaled", "c.gguf:0.5");
  Flag("api_key", "one,two");
  Flag("management_port", "off");
  const ServeConfiguration out = Resolved();
  EXPECT_EQ(out.engine.context_tokens, 4096);
  EXPECT_EQ(out.engine.threads, 0);
  EXPECT_EQ(out.engine.parallel, 8);
  EXPECT_EQ(out.engine.gpu_layers, -1);
  EXPECT_EQ(out.engine.flash_attention, "on");
  EXPECT_EQ(out.engine.cache_type_k, "q8_0");
  EXPECT_EQ(out.engine.cache_type_source, "cli");
  ASSERT_EQ(out.engine.loras.size(), 3U);
  EXPECT_EQ(out.engine.loras[2], (std::pair<std::string, float>("c.gguf", 0.5F)));
  EXPECT_EQ(out.listen.api_keys, (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(out.management.port);
}

TEST_F(OptionsTest, ModelKeysOfTheFileReachTheEngine) {
  File(
      "[defaults.model_fit]\nctx_size = 1024\nflash_attention = \"enabled\"\n"
      "cache_type_v = \"f16\"\nbatch = 256\n[model]\nlora = [\"a\", \"b\"]\n"
      "[management]\nport = 0\n");
  const ServeConfiguration out = Resolved();
  EXPECT_EQ(out.engine.context_tokens, 1024);
  EXPECT_EQ(out.engine.flash_attention, "on");
  EXPECT_EQ(out.engine.cache_type_source, "config");
  EXPECT_EQ(out.engine.loras.size(), 2U);
  EXPECT_EQ(out.engine.ubatch_tokens, 256);
  EXPECT_EQ(out.management.port, 0);
}

TEST_F(OptionsTest, TheListenersOptionsNeedEachOther) {
  const std::vector<std::pair<std::string, std::string>> alone = {
      {"cache_isolation", "key"}, {"ssl_cert_file", "c.pem"}, {"ssl_key_file", "k.pem"}};
  const std::vector<std::string> flags = {"--cache-isolation", "--ssl-cert-file", "--ssl-key-file"};
  for (std::size_t i = 0; i < alone.size(); ++i) {
    Flag(alone[i].first, alone[i].second);
    EXPECT_THAT(Refusal(), HasSubstr(flags[i] + ": "));
    inputs_.cli.clear();
  }
  for (const auto& [name, value] : alone) {
    Flag(name, value);
  }
  Flag("api_key", "k");
  Flag("no_explain_text", "true");
  const ListenOptions listen = Resolved().listen;
  EXPECT_TRUE(listen.isolate_by_key);
  EXPECT_FALSE(listen.explain_text);
  EXPECT_EQ(listen.ssl_cert_file, "c.pem");
  EXPECT_EQ(listen.ssl_key_file, "k.pem");
}

TEST_F(OptionsTest, ASwitchIsABooleanInTheFile) {
  File("[server]\nno_explain_text = true\n");
  EXPECT_FALSE(Resolved().listen.explain_text);
  File("[server]\nno_explain_text = false\n");
  EXPECT_TRUE(Resolved().listen.explain_text);
  File("[server]\nno_explain_text = \"yes\"\n");
  EXPECT_THAT(Refusal(), HasSubstr("true or false"));
}

TEST_F(OptionsTest, BadEngineValuesNameTheirFlag) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"ctx_size", "-5", "--ctx-size"},
      {"threads", "two", "--threads"},
      {"parallel", "251", "--parallel"},
      {"flash_attention", "yes", "--flash-attn"},
      {"cache_type_k", "q3", "--cache-type-k"},
      {"port", "65536", "--port"},
      {"lora_scaled", "a", "--lora-scaled"},
      {"management_host", "0.0.0.0", "--management-host"},
      {"management_port", "-1", "--management-port"},
      {"log_level", "loud", "--log-level"}};
  for (const auto& [name, value, flag] : cases) {
    Flag(name, value);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr(flag + ": "), HasSubstr("\"" + value + "\"")));
    inputs_.cli.clear();
  }
  Flag("batch_size", "64");
  Flag("ubatch_size", "128");
  EXPECT_THAT(Refusal(), HasSubstr("--ubatch-size"));
}

TEST_F(OptionsTest, TheTableHasUniqueNamesKeysAndFlags) {
  std::vector<std::string_view> seen;
  for (const OptionSpec& spec : OptionTable()) {
    for (const std::string_view word :
         {spec.name, spec.long_flag, spec.toml_key, spec.environment}) {
      if (!word.empty()) {
        EXPECT_EQ(std::count(seen.begin(), seen.end(), word), 0) << word;
        seen.push_back(word);
      }
    }
    EXPECT_FALSE(spec.help.empty()) << spec.name;
  }
}

TEST_F(OptionsTest, TheReferencePageIsGeneratedFromTheTable) {
  const std::filesystem::path page =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs" /
      "configuration.md";
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_EQ(text.str(), OptionsMarkdown())
      << "run: skippy options --markdown > docs/configuration.md";
}

}  // namespace
}  // namespace skippy
