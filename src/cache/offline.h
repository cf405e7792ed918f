// A store that no server runs on: check it, look into it, mend it. Every call takes the owner lock
// for as long as it runs, creates nothing, and reads no budget: nothing is evicted.
//   kNotFound     there is no store in the directory
//   kUnavailable  a server, or another of these calls, owns it
//   kCorrupt      SQLite does not accept the catalog (RepairStore puts it aside instead)
//   kUnsupported  of another format version; left alone
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "skippy/env.h"
#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy {

struct OfflineOptions {
  std::string directory;  // absolute
  bool direct_io = true;
  // Called after every segment with the payload bytes read so far and those there are.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

struct StoreReport {
  std::string directory;
  std::uint64_t manifests = 0;  // good ones
  std::uint64_t segments = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t block_bytes = 0;  // payload in whole blocks
  std::uint64_t packs = 0;
  std::uint64_t physical_bytes = 0;  // packs and catalog
  std::vector<std::string> foreign_files;

  std::uint64_t bad_rows = 0;         // segment rows that are damaged or lead nowhere
  std::uint64_t bad_manifests = 0;    // damaged, or of segments that are not there
  std::uint64_t bad_payloads = 0;     // digest does not match
  std::uint64_t unread_payloads = 0;  // the disk failed
  std::uint64_t orphan_bytes = 0;     // rows that no prefix needs
  bool catalog_was_damaged = false;   // RepairStore only: everything was lost
  std::vector<std::string> problems;  // in words, at most kMaxProblems

  static constexpr std::size_t kMaxProblems = 100;
  bool clean() const {
    return bad_rows == 0 && bad_manifests == 0 && bad_payloads == 0 && unread_payloads == 0 &&
           orphan_bytes == 0 && !catalog_was_damaged;
  }
};

// What is stored for one domain. No tokens, no text.
struct StoreDomain {
  ModelIdentity model;
  StateIdentity state;
  std::string model_name;
  std::string name_space;
  std::uint64_t manifests = 0;
  std::uint64_t segments = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t payload_bytes = 0;
  TokenCount longest_tokens = 0;
};

// Reads and checks every row and every payload byte. Changes nothing.
Result<StoreReport> VerifyStore(Env* env, const OfflineOptions& options);

// Sorted by model, state, namespace. Reads no payload.
Result<std::vector<StoreDomain>> InspectStore(Env* env, const OfflineOptions& options);

// As VerifyStore; then removes, durably, what did not pass, and shortens prefixes to what did. What
// could not be read stays. The report says what was found, its totals what is left.
Result<StoreReport> RepairStore(Env* env, const OfflineOptions& options);

}  // namespace skippy
