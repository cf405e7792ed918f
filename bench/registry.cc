#include "bench/registry.h"

#include "bench/benches.h"

namespace skippy::bench {

std::span<const Benchmark> Benchmarks() {
  static const std::vector<Benchmark> kBenchmarks = {
      {"ttft", "<= 1/50 of cold (135M shape), <= 1/10 (demo model), at 4,000 tokens",
       "time to first token: cold, warm, after kill -9 and restart", RunTtft},
      {"l3-overhead", "0.95 to 1.05",
       "engine time of warm requests with the disk tier on against off", RunL3Overhead},
  };
  return kBenchmarks;
}

}  // namespace skippy::bench
