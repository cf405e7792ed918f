#include "control/options.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "control/byte_size.h"
#include "control/config_file.h"
#include "control/disk_options.h"
#include "control/option_table.h"
#include "control/physical_memory.h"

namespace skippy {
namespace {

Error Bad(std::string_view setting, std::string_view text) {
  return MakeError(ErrorCode::kInvalidArgument, fmt::format("{}: {}", setting, text));
}

bool IsFileKindRight(OptionType type, ConfigSetting::Kind kind) {
  switch (type) {
    case OptionType::kNumber:
    case OptionType::kByteSize:
      return kind == ConfigSetting::Kind::kInteger;
    case OptionType::kGpuLayers:
    case OptionType::kPortOrOff:
    case OptionType::kMebibytes:
      return kind == ConfigSetting::Kind::kInteger || kind == ConfigSetting::Kind::kText;
    case OptionType::kSwitch:
      return kind == ConfigSetting::Kind::kBoolean;
    default:
      return kind == ConfigSetting::Kind::kText;
  }
}

const OptionSpec* FindByKey(std::string_view key) {
  const auto table = OptionTable();
  const auto found = std::find_if(table.begin(), table.end(), [&](const OptionSpec& spec) {
    return !spec.toml_key.empty() && spec.toml_key == key;
  });
  return found == table.end() ? nullptr : &*found;
}

class Resolver {
 public:
  explicit Resolver(const OptionInputs& inputs) : inputs_(inputs) {}

  Result<ServeConfiguration> Run() {
    SKIPPY_RETURN_IF_ERROR(TakeConfigFile());
    SKIPPY_RETURN_IF_ERROR(TakeEnvironment());
    SKIPPY_RETURN_IF_ERROR(TakeCommandLine());
    out_.ram.budget_bytes = AutoRamBudgetBytes();
    ApplyIndependent();
    SKIPPY_RETURN_IF_ERROR(CheckBatches());
    SKIPPY_RETURN_IF_ERROR(CheckListener());
    out_.engine.cache_type_source =
        ToString(std::max(SourceOf("cache_type_k"), SourceOf("cache_type_v")));
    SKIPPY_RETURN_IF_ERROR(ResolveDiskOptions(given_, inputs_.environment, &out_));
    return std::move(out_);
  }

 private:
  // A higher source replaces what lower ones gave; within one source lists grow and the last
  // single value wins.
  void Keep(const OptionSpec& spec, OptionValue value, OptionSource source) {
    auto& kept = given_[std::string(spec.name)];
    if (!IsRepeatable(spec) || (!kept.empty() && kept.front().source != source)) {
      kept.clear();
    }
    kept.push_back({std::move(value), source});
  }

  Status TakeConfigFile() {
    std::string path;
    for (const auto& [name, value] : inputs_.cli) {
      path = name == "config" ? value : path;
    }
    if (path.empty()) {
      return {};
    }
    const std::string where = fmt::format("--config {}", QuoteForMessage(path));
    auto settings = ReadConfigFile(path);
    if (!settings) {
      return Bad(where, settings.error().text);
    }
    for (const ConfigSetting& setting : *settings) {
      SKIPPY_RETURN_IF_ERROR(TakeSetting(where, setting));
    }
    return {};
  }

  Status TakeSetting(const std::string& where, const ConfigSetting& setting) {
    const std::string place = fmt::format("{}: line {}: {}", where, setting.line, setting.key);
    const OptionSpec* spec = FindByKey(setting.key);
    if (spec == nullptr) {
      return Bad(place, "unknown key");
    }
    if (setting.in_array && IsRepeatable(*spec) &&
        setting.kind == ConfigSetting::Kind::kEmptyArray) {
      return {};
    }
    if ((setting.in_array && !IsRepeatable(*spec)) || !IsFileKindRight(spec->type, setting.kind)) {
      return Bad(place, fmt::format("{} has the wrong type: expected {}",
                                    QuoteForMessage(setting.text), Expectation(*spec, true)));
    }
    auto value = ParseOptionValue(*spec, setting.text, true);
    if (!value) {
      return Bad(place, value.error().text);
    }
    Keep(*spec, *std::move(value), OptionSource::kConfig);
    return {};
  }

  Status TakeEnvironment() {
    for (const OptionSpec& spec : OptionTable()) {
      if (spec.environment.empty()) {
        continue;
      }
      auto text = ReadVariable(inputs_.environment, std::string(spec.environment));
      if (!text) {
        return std::move(text).error();
      }
      if (*text) {
        SKIPPY_RETURN_IF_ERROR(
            TakeText(spec, **text, OptionSource::kEnvironment, spec.environment));
      }
    }
    return {};
  }

  Status TakeCommandLine() {
    for (const auto& [name, text] : inputs_.cli) {
      const OptionSpec* spec = FindOption(name);
      if (spec == nullptr || spec->long_flag.empty()) {
        return Bad(name, "unknown option");
      }
      SKIPPY_RETURN_IF_ERROR(TakeText(*spec, text, OptionSource::kCli, spec->long_flag));
    }
    return {};
  }

  Status TakeText(const OptionSpec& spec, const std::string& text, OptionSource source,
                  std::string_view setting) {
    auto value = ParseOptionValue(spec, text, false);
    if (!value) {
      return Bad(setting, value.error().text);
    }
    Keep(spec, *std::move(value), source);
    return {};
  }

  void ApplyIndependent() {
    for (const OptionSpec& spec : OptionTable()) {
      const auto found = given_.find(std::string(spec.name));
      if (spec.set == nullptr || found == given_.end()) {
        continue;
      }
      for (const GivenValue& given : found->second) {
        spec.set(given.value, &out_);
      }
    }
  }

  OptionSource SourceOf(const std::string& name) const {
    const auto found = given_.find(name);
    return found == given_.end() ? OptionSource::kDefault : found->second.front().source;
  }

  Status CheckBatches() {
    EngineOptions& engine = out_.engine;
    if (engine.ubatch_tokens <= engine.batch_tokens) {
      return {};
    }
    if (given_.contains("ubatch_size")) {
      return Bad("--ubatch-size", fmt::format("{} is not valid: expected at most the batch size {}",
                                              engine.ubatch_tokens, engine.batch_tokens));
    }
    engine.ubatch_tokens = engine.batch_tokens;
    return {};
  }

  Status CheckListener() const {
    const ListenOptions& listen = out_.listen;
    if (listen.ssl_cert_file.empty() != listen.ssl_key_file.empty()) {
      return listen.ssl_cert_file.empty()
                 ? Bad("--ssl-key-file", "needs the certificate too: --ssl-cert-file")
                 : Bad("--ssl-cert-file", "needs the key too: --ssl-key-file");
    }
    if (listen.isolate_by_key && listen.api_keys.empty()) {
      return Bad("--cache-isolation", "key is not valid without --api-key: there is no key");
    }
    return {};
  }

  const OptionInputs& inputs_;
  GivenOptions given_;
  ServeConfiguration out_;
};

}  // namespace

std::string_view ToString(OptionSource source) {
  switch (source) {
    case OptionSource::kDefault:
      return "default";
    case OptionSource::kLegacyEnvironment:
      return "legacy_environment";
    case OptionSource::kConfig:
      return "config";
    case OptionSource::kEnvironment:
      return "environment";
    case OptionSource::kCli:
      return "cli";
  }
  return "";
}

Result<ServeConfiguration> ResolveOptions(const OptionInputs& inputs) {
  return Resolver(inputs).Run();
}

}  // namespace skippy
