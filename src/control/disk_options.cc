#include "control/disk_options.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "control/byte_size.h"

namespace skippy {
namespace {

constexpr std::uint64_t kLegacyBudgetBytes = 32 * kGiB;
constexpr const char* kHomeVariable = "SKIPPY_HOME";
constexpr const char* kLegacyDirVariable = "SKIPPY_L3_DIR";
constexpr const char* kLegacyBudgetVariable = "SKIPPY_L3_BUDGET_BYTES";
constexpr std::string_view kBudgetKey = "runtime.kv_cache.disk.budget_mib";

Error Bad(std::string_view setting, std::string_view text) {
  return MakeError(ErrorCode::kInvalidArgument, fmt::format("{}: {}", setting, text));
}

bool IsUtf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    const int more = lead < 0x80   ? 0
                     : lead < 0xC2 ? -1
                     : lead < 0xE0 ? 1
                     : lead < 0xF0 ? 2
                     : lead < 0xF5 ? 3
                                   : -1;
    if (more < 0 || i + static_cast<std::size_t>(more) > text.size()) {
      return false;
    }
    for (int n = 0; n < more; ++n) {
      const auto next = static_cast<unsigned char>(text[i++]);
      // The first continuation byte also excludes overlong forms, surrogates and > U+10FFFF.
      const bool bad_second =
          n == 0 && ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
                     (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F));
      if ((next & 0xC0) != 0x80 || bad_second) {
        return false;
      }
    }
  }
  return true;
}

const GivenValue* Find(const GivenOptions& given, const std::string& name) {
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second.back();
}

DiskMode ToMode(const std::string& text) {
  return text == "off" ? DiskMode::kOff : text == "auto" ? DiskMode::kAuto : DiskMode::kFixed;
}

class DiskResolver {
 public:
  DiskResolver(const GivenOptions& given, const EnvironmentReader& environment,
               ServeConfiguration* out)
      : given_(given), environment_(environment), out_(*out), disk_(out->disk) {}

  Status Run() {
    SKIPPY_RETURN_IF_ERROR(ReadAmbient());
    if (const GivenValue* reserve = Find(given_, "kv_cache_min_free")) {
      disk_.minimum_free_source = reserve->source;
    }
    SKIPPY_RETURN_IF_ERROR(ResolveModeAndBudget());
    SKIPPY_RETURN_IF_ERROR(ResolveDirectory());
    if (uses_legacy_) {
      out_.warnings.push_back(fmt::format(
          "{} is deprecated and will be removed after one release: use SKIPPY_KV_CACHE_DISK and "
          "SKIPPY_KV_CACHE_DISK_DIR",
          kLegacyDirVariable));
    }
    return {};
  }

 private:
  Status ReadAmbient() {
    SKIPPY_ASSIGN_OR_RETURN(legacy_dir_, ReadVariable(environment_, kLegacyDirVariable));
    if (legacy_dir_ && !IsAbsolutePath(*legacy_dir_)) {
      return Bad(kLegacyDirVariable, NotAbsolute(*legacy_dir_));
    }
    SKIPPY_ASSIGN_OR_RETURN(const auto home, ReadVariable(environment_, kHomeVariable));
    if (home) {
      if (!IsAbsolutePath(*home)) {
        return Bad(kHomeVariable, NotAbsolute(*home));
      }
      home_ = *home;
      return {};
    }
    SKIPPY_ASSIGN_OR_RETURN(const auto user_home, ReadVariable(environment_, "HOME"));
    if (user_home && IsAbsolutePath(*user_home)) {
      home_ = *user_home + "/.skippy";
    }
    return {};
  }

  static std::string NotAbsolute(const std::string& text) {
    return fmt::format("{} is not valid: expected an absolute path", QuoteForMessage(text));
  }

  Status ResolveModeAndBudget() {
    const GivenValue* mode = Find(given_, "kv_cache_disk");
    const GivenValue* file_budget = Find(given_, "kv_cache_disk_budget");
    if (mode == nullptr) {
      return ResolveWithoutMode(file_budget);
    }
    disk_.options.mode = ToMode(mode->value.text);
    disk_.mode_source = mode->source;
    if (mode->source != OptionSource::kConfig) {
      // "off", "auto" and SIZE of a flag or variable speak for the budget too.
      disk_.options.budget_bytes = mode->value.byte_count;
      disk_.budget_source = mode->value.byte_count > 0 ? mode->source : OptionSource::kDefault;
      return {};
    }
    if (disk_.options.mode != DiskMode::kFixed) {
      return file_budget == nullptr ? Status() : BudgetWithoutFixed(mode->value.text);
    }
    if (file_budget == nullptr) {
      return Bad(kBudgetKey, "missing: mode \"fixed\" needs a budget, a whole number of MiB");
    }
    TakeFileBudget(*file_budget);
    return {};
  }

  Status ResolveWithoutMode(const GivenValue* file_budget) {
    if (!legacy_dir_) {
      if (environment_(kLegacyBudgetVariable)) {
        out_.warnings.push_back(
            fmt::format("{} is ignored without {}", kLegacyBudgetVariable, kLegacyDirVariable));
      }
      return file_budget == nullptr ? Status() : BudgetWithoutFixed("off");
    }
    uses_legacy_ = true;
    disk_.options.mode = DiskMode::kFixed;
    disk_.mode_source = OptionSource::kLegacyEnvironment;
    if (file_budget != nullptr) {
      TakeFileBudget(*file_budget);
      return {};
    }
    return TakeLegacyBudget();
  }

  Status TakeLegacyBudget() {
    disk_.options.budget_bytes = kLegacyBudgetBytes;
    disk_.budget_source = OptionSource::kLegacyEnvironment;
    SKIPPY_ASSIGN_OR_RETURN(const auto text, ReadVariable(environment_, kLegacyBudgetVariable));
    if (!text) {
      return {};
    }
    const auto byte_count = ParseWholeNumber(*text);
    if (!byte_count) {
      return Bad(
          kLegacyBudgetVariable,
          fmt::format("{} is not valid: expected a whole number of bytes", QuoteForMessage(*text)));
    }
    if (*byte_count == 0) {
      out_.warnings.push_back(fmt::format("{}=0 does not mean unlimited: the budget is {}",
                                          kLegacyBudgetVariable,
                                          FormatByteSize(kLegacyBudgetBytes)));
      return {};
    }
    disk_.options.budget_bytes = *byte_count;
    return {};
  }

  static Status BudgetWithoutFixed(std::string_view mode) {
    return Bad(kBudgetKey,
               fmt::format("only allowed with mode \"fixed\", but the mode is \"{}\"", mode));
  }

  void TakeFileBudget(const GivenValue& budget) {
    disk_.options.budget_bytes = budget.value.byte_count;
    disk_.budget_source = budget.source;
  }

  Status ResolveDirectory() {
    if (const GivenValue* directory = Find(given_, "kv_cache_disk_dir")) {
      disk_.options.directory = directory->value.text;
      disk_.directory_source = directory->source;
    } else if (legacy_dir_) {
      uses_legacy_ = true;
      disk_.options.directory = *legacy_dir_;
      disk_.directory_source = OptionSource::kLegacyEnvironment;
    } else if (!home_.empty()) {
      disk_.options.directory = home_ + "/kv-cache";
    } else if (disk_.options.mode != DiskMode::kOff) {
      return Bad("--kv-cache-disk-dir",
                 "missing: neither SKIPPY_HOME nor HOME gives a default directory");
    }
    if (!home_.empty() && disk_.options.mode != DiskMode::kOff) {
      out_.engine.digest_memo_directory = home_ + "/digests";
    }
    return {};
  }

  const GivenOptions& given_;
  const EnvironmentReader& environment_;
  ServeConfiguration& out_;
  DiskConfiguration& disk_;
  std::string home_;  // empty: unknown
  std::optional<std::string> legacy_dir_;
  bool uses_legacy_ = false;
};

}  // namespace

Result<std::optional<std::string>> ReadVariable(const EnvironmentReader& environment,
                                                const std::string& variable) {
  std::optional<std::string> text = environment(variable);
  if (text && !IsUtf8(*text)) {
    return Bad(variable, fmt::format("{} is not valid: expected UTF-8", QuoteForMessage(*text)));
  }
  return text;
}

Status ResolveDiskOptions(const GivenOptions& given, const EnvironmentReader& environment,
                          ServeConfiguration* out) {
  return DiskResolver(given, environment, out).Run();
}

}  // namespace skippy
