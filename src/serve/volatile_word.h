// Finds what changes from request to request by its look: dates, times, ids, counters. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace skippy {

// The run of letters, digits and - : . / _ + of `text` that holds or touches `position`.
std::string_view WordAt(std::string_view text, std::size_t position);

// "uuid", "date", "time", "date and time", "hexadecimal id", "number"; empty: none of them.
std::string_view VolatileKind(std::string_view word);

}  // namespace skippy
