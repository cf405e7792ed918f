// How much memory the process may count on.
#pragma once

#include <cstdint>

namespace skippy {

// Physical memory of the machine, or the limit of the control group where that is lower.
std::uint64_t PhysicalMemoryBytes();

// The budget of the RAM tier that `auto` means.
std::uint64_t AutoRamBudgetBytes();

}  // namespace skippy
