// A file system that can lose power at any moment and fail at any call: crash tests and
// certification run the real store over it.
//
// It keeps ONE ordered history of the changes to all files and directories, each with whether it
// has become durable: a file's changes by its Sync, names (creations, renames, removals) by
// SyncDirectory of the directory they lie in. A crash replays the history on what was durable
// before; each change that is not durable is applied, dropped or torn. Nothing is assumed beyond
// that, in particular no order between two changes that are both not durable. A sector of 512 bytes
// is written wholly or not at all.
//
// Drivers: run a script once with a hook that takes AfterCrash at every point, or stop the power at
// the k-th sync or change, let the code under test run into the errors, and take AfterCrash then.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "env/memory_env.h"

namespace skippy {

// What becomes of the changes that are not durable when the power goes.
enum class CrashPolicy {
  kApplyAll,  // also what kill -9 leaves: the kernel still writes everything
  kDropAll,
  kTearLast,  // all are applied, of the last write only the first half of its sectors
  kRandom,    // each is applied, dropped or, a write, torn sector by sector
};

// An operation that will fail with kIo.
struct Fault {
  FileOpKind kind = FileOpKind::kWrite;
  std::uint64_t nth = 1;      // the next one of this kind that matches is 1
  std::uint64_t repeat = 1;   // how many in a row fail
  std::string path_contains;  // "" matches every path
  // kWrite: leading bytes that are written before it fails (a short write).
  std::uint64_t applied_bytes = 0;

  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();
};

// Thread-safe. A Sync that fails leaves the file's changes so far in doubt for good: no later Sync
// makes them durable, as on Linux, where the pages count as clean after the error.
class FaultEnv final : public MemoryEnv {
 public:
  FaultEnv() = default;

  void Inject(Fault fault) EXCLUDES(fault_mu_);
  void ClearFaults() EXCLUDES(fault_mu_);
  // Called before every operation, in the caller's thread, with no lock held: it may block (a slow
  // disk), take AfterCrash or count. Set it before other threads use the env.
  void SetHook(std::function<void(const FileOp&)> hook);

  // Syncs (of files and directories) and changes so far; the count includes the one that a hook is
  // being told of.
  std::uint64_t sync_count() const EXCLUDES(fault_mu_);
  std::uint64_t change_count() const EXCLUDES(fault_mu_);
  // The power goes just before the k-th sync, or the k-th change: that operation and every later
  // one, reads included, fails with kIo and changes nothing.
  void StopAtSync(std::uint64_t k) EXCLUDES(fault_mu_);
  void StopAtChange(std::uint64_t k) EXCLUDES(fault_mu_);
  bool stopped() const EXCLUDES(fault_mu_);

  // What is found after power comes back: a fresh env without faults, locks or open files; its
  // contents are durable, free space and clock go on. The same seed gives the same outcome.
  std::unique_ptr<FaultEnv> AfterCrash(CrashPolicy policy, std::uint64_t seed) const EXCLUDES(mu_);
  // Changes that a crash could lose now.
  std::size_t pending_changes() const EXCLUDES(mu_);

 protected:
  Verdict Before(const FileOp& op) override EXCLUDES(fault_mu_);
  void After(const FileOp& op) override REQUIRES(mu_);
  void SyncFailed(NodeId node) override REQUIRES(mu_);

 private:
  struct Entry {
    FileOp op;
    std::vector<std::byte> bytes;  // what op.bytes points to
    bool durable = false;
    bool in_doubt = false;  // a sync failed: stays as it is for ever
  };
  class Dice;

  bool CountAndCheckPower(const FileOp& op) REQUIRES(fault_mu_);
  Fault* MatchFault(const FileOp& op) REQUIRES(fault_mu_);
  void MarkDurable(const FileOp& sync) REQUIRES(mu_);
  void FoldDurable() REQUIRES(mu_);
  static void ApplyAfterCrash(const Entry& entry, Dice& dice, MemoryImage& image);

  MemoryImage durable_ GUARDED_BY(mu_);  // everything before history_
  std::deque<Entry> history_ GUARDED_BY(mu_);

  std::function<void(const FileOp&)> hook_;  // constant once threads run
  mutable Mutex fault_mu_;
  std::vector<Fault> faults_ GUARDED_BY(fault_mu_);
  std::uint64_t sync_count_ GUARDED_BY(fault_mu_) = 0;
  std::uint64_t change_count_ GUARDED_BY(fault_mu_) = 0;
  std::uint64_t stop_at_sync_ GUARDED_BY(fault_mu_) = Fault::kForever;
  std::uint64_t stop_at_change_ GUARDED_BY(fault_mu_) = Fault::kForever;
  bool stopped_ GUARDED_BY(fault_mu_) = false;
};

}  // namespace skippy
