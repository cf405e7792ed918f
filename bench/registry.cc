#include "bench/registry.h"

#include "bench/benches.h"

namespace skippy::bench {

std::span<const Benchmark> Benchmarks() {
  static const std::vector<Benchmark> kBenchmarks = {
      {"ttft", "<= 1/50 of cold (135M shape), <= 1/10 (demo model), at 4,000 tokens",
       "time to first token: cold, warm, after kill -9 and restart", RunTtft},
      {"l3-overhead", "0.95 to 1.05",
       "engine time of warm requests with the disk tier on against off", RunL3Overhead},
      {"shared-prefix", "<= 4,464 (4 clients, 4,000 common and 100 own tokens)",
       "prompt tokens computed when requests with a common head arrive together", RunSharedPrefix},
      {"decode-gap", "<= 1.05", "gaps between a client's tokens while others restore from disk",
       RunDecodeGap},
      {"idle-residents", ">= 0.9", "speed of an active client beside idle sessions",
       RunIdleResidents},
      {"peers", ">= 0.98", "speed beside llama-server from the same source (`make peers`)",
       RunPeers},
      {"write-amplification", "<= 1.02 over the run, <= 1.05 in the worst turn",
       "payload bytes written for each byte of new state", RunWriteAmplification},
      {"l2-tier", ">= 0.9 of a plain copy; handles by key <= 5 us",
       "a lookup in RAM until the bytes are usable, against a cold fill from disk", RunL2Tier},
      {"l2-sessions", "1", "more conversations than the engine holds, kept in RAM", RunL2Sessions},
      {"evict", "<= 16 ms; the own shape, durable, <= 16 ms", "time to evict 20 long prefixes",
       RunEvict},
      {"reopen", "<= 3 s at 1,000,000 segments", "opening a large store to the first lookup",
       RunReopen},
      {"restore-io", ">= 0.85", "restoring a long prefix from disk against plain reads",
       RunRestoreIo},
      {"spill-io", ">= 0.8", "recording a long prefix to disk against plain writes", RunSpillIo},
      {"budget-watch", "<= 1, always", "largest part of the budget that the root takes",
       RunBudgetWatch},
  };
  return kBenchmarks;
}

}  // namespace skippy::bench
