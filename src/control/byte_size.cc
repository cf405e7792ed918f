#include "control/byte_size.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <limits>
#include <utility>

namespace skippy {
namespace {

constexpr std::uint64_t kLargestByteCount = std::numeric_limits<std::int64_t>::max();

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> kUnits = {{
    {"KiB", std::uint64_t{1} << 10},
    {"MiB", std::uint64_t{1} << 20},
    {"GiB", std::uint64_t{1} << 30},
    {"TiB", std::uint64_t{1} << 40},
}};

}  // namespace

std::optional<std::uint64_t> ParseWholeNumber(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    const std::uint64_t digit = static_cast<std::uint64_t>(c - '0');
    if (value > (kLargestByteCount - digit) / 10) {
      return std::nullopt;
    }
    value = value * 10 + digit;
  }
  return value;
}

std::optional<std::uint64_t> ParseByteSize(std::string_view text) {
  for (const auto& [unit, unit_bytes] : kUnits) {
    if (text.size() <= unit.size() || !text.ends_with(unit)) {
      continue;
    }
    const auto count = ParseWholeNumber(text.substr(0, text.size() - unit.size()));
    if (!count || *count == 0 || *count > kLargestByteCount / unit_bytes) {
      return std::nullopt;
    }
    return *count * unit_bytes;
  }
  return std::nullopt;
}

std::string FormatByteSize(std::uint64_t byte_count) {
  std::string_view unit;
  double shown = static_cast<double>(byte_count);
  for (const auto& [name, unit_bytes] : kUnits) {
    if (byte_count >= unit_bytes) {
      unit = name;
      shown = static_cast<double>(byte_count) / static_cast<double>(unit_bytes);
    }
  }
  return unit.empty() ? fmt::format("{} B", byte_count) : fmt::format("{:.1f} {}", shown, unit);
}

std::string QuoteForMessage(std::string_view text) {
  constexpr std::size_t kLongestShown = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongestShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7E) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  return out + (text.size() > kLongestShown ? "...\"" : "\"");
}

}  // namespace skippy
