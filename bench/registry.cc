#include "bench/registry.h"

namespace skippy::bench {

std::span<const Benchmark> Benchmarks() {
  static const std::vector<Benchmark> kBenchmarks = {};
  return kBenchmarks;
}

}  // namespace skippy::bench
