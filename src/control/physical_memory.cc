#include "control/physical_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "skippy/options.h"

namespace skippy {
namespace {

// Of the control group that the process sees as its root, as in a container; absent or "max": none.
constexpr char kGroupLimitFile[] = "/sys/fs/cgroup/memory.max";
constexpr std::uint64_t kAutoShare = 8;

}  // namespace

std::uint64_t PhysicalMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  std::uint64_t total =
      static_cast<std::uint64_t>(std::max(pages, 0L)) * static_cast<std::uint64_t>(page_bytes);
  std::uint64_t limit = 0;
  if (std::ifstream(kGroupLimitFile) >> limit) total = std::min(total, limit);
  return total;
}

std::uint64_t AutoRamBudgetBytes() {
  return std::min(PhysicalMemoryBytes() / kAutoShare, kAutoRamCeilingBytes);
}

}  // namespace skippy
