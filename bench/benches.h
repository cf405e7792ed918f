// The run functions of all benchmarks; registry.cc has the table.
#pragma once

#include <string>
#include <vector>

#include "bench/registry.h"

namespace skippy::bench {

Result<BenchReport> RunTtft(const std::vector<std::string>& arguments);
Result<BenchReport> RunL3Overhead(const std::vector<std::string>& arguments);
Result<BenchReport> RunSharedPrefix(const std::vector<std::string>& arguments);
Result<BenchReport> RunDecodeGap(const std::vector<std::string>& arguments);
Result<BenchReport> RunIdleResidents(const std::vector<std::string>& arguments);
Result<BenchReport> RunPeers(const std::vector<std::string>& arguments);
Result<BenchReport> RunWriteAmplification(const std::vector<std::string>& arguments);
Result<BenchReport> RunEvict(const std::vector<std::string>& arguments);
Result<BenchReport> RunL2Tier(const std::vector<std::string>& arguments);
Result<BenchReport> RunL2Sessions(const std::vector<std::string>& arguments);
Result<BenchReport> RunReopen(const std::vector<std::string>& arguments);
Result<BenchReport> RunRestoreIo(const std::vector<std::string>& arguments);
Result<BenchReport> RunSpillIo(const std::vector<std::string>& arguments);
Result<BenchReport> RunBudgetWatch(const std::vector<std::string>& arguments);

}  // namespace skippy::bench
