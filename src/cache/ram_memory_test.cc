// Goal: the RAM tier takes no more memory than its budget says, and gives it back. Method: the
// resident set of this process while a tier fills, at its budget, and after the budget was halved.
// Not in sanitized builds: their shadow and freed memory they keep would be counted as the tier's.
#ifndef SKIPPY_SANITIZED
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "cache/cache_test_util.h"

namespace skippy {
namespace {

constexpr std::uint64_t kRowBytes = 8192;
constexpr std::uint64_t kBudgetBytes = 128 * kMiB;

std::uint64_t ProcessResidentBytes() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void RecordLarge(Cache& cache, DomainId domain, std::uint32_t seed) {
  const auto path = MakePath(seed, 1000);
  const auto recording = cache.StartRecording(domain, ResumeRule::kAnyToken);
  while (const auto run = recording->NextRun(path, 1000, /*flush=*/true)) {
    auto buffer = cache.AcquireBuffer(static_cast<std::uint64_t>(run->token_count) * kRowBytes);
    ASSERT_NE(buffer, nullptr);
    std::memset(buffer->bytes().data(), static_cast<int>(seed), buffer->bytes().size());
    std::memcpy(buffer->bytes().data(), &seed, sizeof(seed));
    std::memcpy(buffer->bytes().data() + sizeof(seed), &run->first_token, sizeof(TokenCount));
    ASSERT_EQ(recording->Append(path, *run, std::move(buffer)), RefusalReason::kNone);
  }
  recording->Publish(path, 1000);
  ASSERT_TRUE(cache.Flush());
}

class RamMemoryTest : public CacheFixture {
 protected:
  // Above what the process had before.
  std::uint64_t Grown() {
    const std::uint64_t now = ProcessResidentBytes();
    return now > before_ ? now - before_ : 0;
  }
  void Check(const char* moment) {
    const RamUsage ram = cache_->GetStatus().ram;
    const std::uint64_t grown = Grown();
    std::printf("%s: budget %.1f MiB, counted %.1f MiB, resident set grew by %.1f MiB\n", moment,
                static_cast<double>(ram.budget_bytes) / kMiB,
                static_cast<double>(ram.resident_bytes + ram.in_flight_bytes) / kMiB,
                static_cast<double>(grown) / kMiB);
    EXPECT_LE(grown, ram.budget_bytes + ram.budget_bytes / 20);
  }
  std::uint64_t before_ = 0;
};

// Proves C4.
TEST_F(RamMemoryTest, TheProcessGrowsByNoMoreThanTheBudgetAndShrinksWithIt) {
  options_.disk.mode = DiskMode::kOff;
  options_.ram.budget_bytes = kBudgetBytes;
  Open();
  before_ = ProcessResidentBytes();
  for (std::uint32_t i = 1; i <= 40; ++i) {
    RecordLarge(*cache_, domain_, i);
    if (i % 5 == 0) Check("filling");
  }
  EXPECT_GE(Grown(), kBudgetBytes / 2);
  EXPECT_GT(cache_->GetStatus().ram.evictions, 0U);
  Check("at the budget");
  ASSERT_TRUE(cache_->SetRamLimit(kBudgetBytes / 2));
  Check("at half the budget");
  ASSERT_TRUE(cache_->SetRamLimit(0));
  EXPECT_LE(Grown(), kBudgetBytes / 20);
}

}  // namespace
}  // namespace skippy
#endif  // SKIPPY_SANITIZED
