// Byte counts as people write and read them. One grammar for flags, environment and CLI tools:
// a positive whole number, directly followed by KiB, MiB, GiB or TiB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace skippy {

inline constexpr std::string_view kByteSizeExpectation =
    "a positive whole number followed by KiB, MiB, GiB or TiB, like 64GiB";

// nullopt for everything outside the grammar: bare numbers, decimals, other units or cases, spaces,
// signs, leading zeros, zero, and what does not fit a signed 64-bit number of bytes.
std::optional<std::uint64_t> ParseByteSize(std::string_view text);

// Digits only, no sign, no leading zero, <= INT64_MAX. nullopt otherwise.
std::optional<std::uint64_t> ParseWholeNumber(std::string_view text);

// "0 B", "512 B", "1.5 KiB", "64.0 GiB": one decimal, for people.
std::string FormatByteSize(std::uint64_t byte_count);

// `text` in double quotes, fit for one line of any terminal: control characters and bytes outside
// ASCII become \xNN, and what passes 80 characters is cut.
std::string QuoteForMessage(std::string_view text);

}  // namespace skippy
