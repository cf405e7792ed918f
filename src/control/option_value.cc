// How the text of a value is checked, by option type.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "control/byte_size.h"
#include "control/option_table.h"
#include "control/physical_memory.h"

namespace skippy {
namespace {

constexpr int kLargestPort = 65535;

std::optional<std::int64_t> ParseSigned(std::string_view text) {
  const bool negative = text.starts_with('-');
  const auto magnitude = ParseWholeNumber(negative ? text.substr(1) : text);
  if (!magnitude || (negative && *magnitude == 0)) {
    return std::nullopt;
  }
  const auto value = static_cast<std::int64_t>(*magnitude);
  return negative ? -value : value;
}

bool IsChoice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == text) {
      return true;
    }
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

bool IsScaledList(const std::string& text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t colon = part.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == part.size()) {
      return false;
    }
    const std::string scale = part.substr(colon + 1);
    if (scale.find_first_not_of("0123456789.-") != std::string::npos) {
      return false;
    }
    char* rest = nullptr;
    std::strtof(scale.c_str(), &rest);
    if (*rest != '\0') {
      return false;
    }
    begin = end + 1;
  }
  return true;
}

bool IsLoopbackHost(std::string_view text) {
  if (text == "localhost" || text == "::1") {
    return true;
  }
  int dots = 0;
  std::string_view rest = text;
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const auto part = ParseWholeNumber(rest.substr(0, dot));
    if (!part || *part > 255) {
      return false;
    }
    if (dot == rest.size()) {
      break;
    }
    ++dots;
    rest.remove_prefix(dot + 1);
  }
  return dots == 3 && text.starts_with("127.");
}

std::optional<OptionValue> ParseNumber(const OptionSpec& spec, const std::string& text) {
  const auto number = ParseSigned(text);
  if (!number || *number < spec.low || *number > spec.high) {
    return std::nullopt;
  }
  return OptionValue{text, *number, 0};
}

std::optional<OptionValue> ParseBytes(const OptionSpec& spec, const std::string& text,
                                      bool in_file) {
  std::optional<std::uint64_t> byte_count = ParseByteSize(text);
  if (in_file) {
    const auto mib = ParseWholeNumber(text);
    const bool fits = mib && *mib <= std::numeric_limits<std::int64_t>::max() / kMiB;
    byte_count = fits ? std::optional<std::uint64_t>(*mib * kMiB) : std::nullopt;
  }
  if (!byte_count || *byte_count < static_cast<std::uint64_t>(spec.low)) {
    return std::nullopt;
  }
  return OptionValue{text, 0, *byte_count};
}

std::optional<OptionValue> ParseMebibytes(const std::string& text) {
  if (text == "auto") {
    return OptionValue{text, 0, AutoRamBudgetBytes()};
  }
  const auto mib = ParseWholeNumber(text);
  const bool fits = mib && *mib <= std::numeric_limits<std::int64_t>::max() / kMiB;
  return fits ? std::optional<OptionValue>(OptionValue{text, 0, *mib * kMiB}) : std::nullopt;
}

std::optional<OptionValue> ParseDiskMode(const std::string& text, bool in_file) {
  if (text == "off" || text == "auto" || (in_file && text == "fixed")) {
    return OptionValue{text, 0, 0};
  }
  const auto byte_count = in_file ? std::nullopt : ParseByteSize(text);
  return byte_count ? std::optional<OptionValue>(OptionValue{"fixed", 0, *byte_count})
                    : std::nullopt;
}

std::optional<OptionValue> ParseFlash(const std::string& text, bool in_file) {
  if (text == "auto") {
    return OptionValue{text, 0, 0};
  }
  if (text == (in_file ? "enabled" : "on")) {
    return OptionValue{"on", 0, 0};
  }
  return text == (in_file ? "disabled" : "off") ? std::optional<OptionValue>({"off", 0, 0})
                                                : std::nullopt;
}

std::optional<OptionValue> ParsePortOrOff(const std::string& text) {
  if (text == "off") {
    return OptionValue{text, 0, 0};
  }
  const auto port = ParseWholeNumber(text);
  return port && *port <= kLargestPort
             ? std::optional<OptionValue>({text, static_cast<std::int64_t>(*port), 0})
             : std::nullopt;
}

bool IsShares(const std::string& text) {
  bool has_share = false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    char* rest = nullptr;
    const float share = std::strtof(part.c_str(), &rest);
    const bool is_number = !part.empty() && rest == part.c_str() + part.size() &&
                           part.find_first_not_of("0123456789.") == std::string::npos;
    if (!is_number || share < 0) return false;
    has_share = has_share || share > 0;
    begin = end + 1;
  }
  return has_share;
}

std::optional<OptionValue> Keep(const std::string& text, bool accepted) {
  return accepted ? std::optional<OptionValue>({text, 0, 0}) : std::nullopt;
}

std::optional<OptionValue> ParseByType(const OptionSpec& spec, const std::string& text,
                                       bool in_file) {
  switch (spec.type) {
    case OptionType::kText:
      return Keep(text, !text.empty());
    case OptionType::kList:
      return Keep(text, text.find_first_not_of(',') != std::string::npos);
    case OptionType::kNumber:
      return ParseNumber(spec, text);
    case OptionType::kChoice:
      return Keep(text, IsChoice(spec.choices, text));
    case OptionType::kFlashChoice:
      return ParseFlash(text, in_file);
    case OptionType::kGpuLayers:
      return text == "auto" || text == "all" ? OptionValue{text, -1, 0} : ParseNumber(spec, text);
    case OptionType::kAbsolutePath:
      return Keep(text, IsAbsolutePath(text));
    case OptionType::kByteSize:
      return ParseBytes(spec, text, in_file);
    case OptionType::kMebibytes:
      return ParseMebibytes(text);
    case OptionType::kDiskMode:
      return ParseDiskMode(text, in_file);
    case OptionType::kPortOrOff:
      return ParsePortOrOff(text);
    case OptionType::kLoopbackHost:
      return Keep(text, IsLoopbackHost(text));
    case OptionType::kScaledList:
      return Keep(text, IsScaledList(text));
    case OptionType::kShares:
      return Keep(text, IsShares(text));
    case OptionType::kSwitch:
      return Keep(text, text == "true" || text == "false");
  }
  return std::nullopt;
}

std::string ByteExpectation(const OptionSpec& spec, bool in_file) {
  const auto low = static_cast<std::uint64_t>(spec.low);
  if (in_file) {
    return fmt::format("a whole number of MiB, at least {}", low / kMiB);
  }
  return std::string(kByteSizeExpectation) +
         (low > 1 ? fmt::format(", at least {}MiB", low / kMiB) : "");
}

}  // namespace

std::string Expectation(const OptionSpec& spec, bool in_file) {
  switch (spec.type) {
    case OptionType::kText:
      return "a text that is not empty";
    case OptionType::kList:
      return "one or more values, separated by commas";
    case OptionType::kNumber:
      return fmt::format("a whole number from {} to {}", spec.low, spec.high);
    case OptionType::kChoice:
      return fmt::format("one of {}", spec.choices);
    case OptionType::kFlashChoice:
      return in_file ? "enabled, disabled or auto" : "on, off or auto";
    case OptionType::kGpuLayers:
      return fmt::format("auto, all or a whole number from {} to {}", spec.low, spec.high);
    case OptionType::kAbsolutePath:
      return "an absolute path";
    case OptionType::kByteSize:
      return ByteExpectation(spec, in_file);
    case OptionType::kMebibytes:
      return "auto or a whole number of MiB, 0 or more";
    case OptionType::kDiskMode:
      return in_file ? "off, auto or fixed" : fmt::format("off, auto or {}", kByteSizeExpectation);
    case OptionType::kPortOrOff:
      return fmt::format("off or a port from 0 to {}", kLargestPort);
    case OptionType::kLoopbackHost:
      return "a loopback address: 127.0.0.1, ::1 or localhost";
    case OptionType::kScaledList:
      return "FILE:SCALE, several separated by commas";
    case OptionType::kShares:
      return "numbers separated by commas, none negative and not all 0";
    case OptionType::kSwitch:
      return in_file ? "true or false" : "no value";
  }
  return "";
}

Result<OptionValue> ParseOptionValue(const OptionSpec& spec, const std::string& text,
                                     bool in_file) {
  if (auto value = ParseByType(spec, text, in_file)) {
    return *value;
  }
  return MakeError(ErrorCode::kInvalidArgument,
                   fmt::format("{} is not valid: expected {}", QuoteForMessage(text),
                               Expectation(spec, in_file)));
}

}  // namespace skippy
