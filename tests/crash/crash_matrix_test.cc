// Goal: whatever the moment at which the power goes, the cache may have forgotten, but serves no
// wrong byte, refers to nothing that is missing, leaks no block, stays within its budget and keeps
// what it called durable. Method: one scripted run of everything a cache does; before every change
// and every sync of any file or directory, several images of what a power cut could leave are
// opened and read completely (crash_world.h). SKIPPY_CRASH_FULL=1 runs all draws of a longer
// script.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "cache/cache_test_util.h"
#include "crash/crash_world.h"

namespace skippy {
namespace {

constexpr std::uint64_t kSeed = 20260301;
constexpr std::uint64_t kLargeBudgetBytes = 6 * kMiB;
constexpr std::uint64_t kSmallBudgetBytes = 5 * kMiB;

class CrashMatrixTest : public testing::Test {
 protected:
  CrashMatrixTest()
      : full_(std::getenv("SKIPPY_CRASH_FULL") != nullptr),
        world_(full_ ? CrashEffort{} : CrashEffort{.random_draws = 1, .every_policy = false},
               kSeed) {
    spdlog::set_level(spdlog::level::off);
  }

  std::size_t AddPath(std::uint8_t model, std::vector<Token> tokens,
                      ResumeRule rule = ResumeRule::kAnyToken) {
    return world_.AddPath(SpecOf(model, 1, model == 2 ? "tenant" : ""), rule, std::move(tokens));
  }

  // One conversation that grows and branches, one of another model with checkpoints.
  void Converse(std::uint32_t seed) {
    const auto trunk = MakePath(seed, 330);
    auto branch = std::vector<Token>(trunk.begin(), trunk.begin() + 150);
    const std::size_t main_line = AddPath(1, trunk);
    const std::size_t side_line = AddPath(1, Join(branch, MakePath(seed + 1, 90)));
    const std::size_t hybrid = AddPath(2, MakePath(seed + 2, 120), ResumeRule::kCheckpoint);
    world_.RecordPath(main_line, 100);
    world_.RecordPath(main_line, 260);
    world_.RecordPath(side_line, 240);
    world_.RecordCheckpoint(hybrid, 70);
    world_.RecordPath(main_line, 330);
    world_.RecordCheckpoint(hybrid, 120);
    world_.Touch(side_line);
  }
  // More than the budget holds.
  void Fill(std::uint32_t seed, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      world_.RecordPath(AddPath(1, MakePath(seed + i, 280)), 280);
    }
  }
  void DamageAndRecordAgain(std::uint32_t seed) {
    const std::size_t victim = AddPath(1, MakePath(seed, 300));
    world_.RecordPath(victim, 300);
    world_.Damage(victim, 270);
    world_.RecordPath(victim, 300);
  }
  void RunRound(std::uint32_t seed) {
    Converse(seed);
    DamageAndRecordAgain(seed + 10);
    Fill(seed + 20, full_ ? 14 : 8);
    world_.Prune(kLargeBudgetBytes - 1100 * kKiB);
    // Blocks of what was evicted must not be written before the commit that removes its rows.
    world_.PruneWhileTheCatalogFails(kLargeBudgetBytes - 1700 * kKiB);
    Fill(seed + 40, 2);
    Converse(seed + 50);
    world_.Resize(kSmallBudgetBytes);
    Fill(seed + 60, 4);
    world_.ClearModel(2);
    world_.Resize(kLargeBudgetBytes);
    Converse(seed + 70);
    world_.CloseCleanly();
    world_.Open();
  }

  const bool full_;
  CrashWorld world_;
};

// Proves D20, D36, D52 to D58 and D69.
// Proves D16, E9, E15.
TEST_F(CrashMatrixTest, KeepsItsPromisesWheneverThePowerGoes) {
  world_.Open();
  const std::uint32_t rounds = full_ ? 5 : 3;
  for (std::uint32_t round = 0; round < rounds && !HasFailure(); ++round) {
    RunRound(1000 + 1000 * round);
  }
  const CrashCounts& counts = world_.counts();
  std::printf(
      "crash matrix: seed %llu, %llu crash points, %llu images opened, %llu repaired at "
      "start; %llu of at least %llu tokens restored\n",
      static_cast<unsigned long long>(kSeed), static_cast<unsigned long long>(counts.points),
      static_cast<unsigned long long>(counts.images),
      static_cast<unsigned long long>(counts.repaired_images),
      static_cast<unsigned long long>(counts.found_tokens),
      static_cast<unsigned long long>(counts.kept_tokens));
  EXPECT_GE(counts.points, 2000U);
  EXPECT_GT(counts.kept_tokens, 0U);
}

}  // namespace
}  // namespace skippy
