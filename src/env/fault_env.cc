#include "env/fault_env.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "env/os_error.h"

namespace skippy {
namespace {

constexpr std::uint64_t kSectorBytes = 512;

bool IsSync(FileOpKind kind) {
  return kind == FileOpKind::kSync || kind == FileOpKind::kSyncDirectory;
}

bool IsChange(FileOpKind kind) { return kind != FileOpKind::kRead && !IsSync(kind); }

// Whether a change is about a name, and so becomes durable with its directory, not with its file.
bool IsNaming(FileOpKind kind) {
  switch (kind) {
    case FileOpKind::kCreateFile:
    case FileOpKind::kCreateDirectory:
    case FileOpKind::kRemoveFile:
    case FileOpKind::kRemoveDirectory:
    case FileOpKind::kRename:
      return true;
    default:
      return false;
  }
}

bool MadeDurableBy(const FileOp& sync, const FileOp& change) {
  if (sync.kind == FileOpKind::kSync) {
    return !IsNaming(change.kind) && change.node == sync.node;
  }
  const std::string& name = change.kind == FileOpKind::kRename ? change.new_path : change.path;
  return IsNaming(change.kind) && ParentOf(name) == sync.path;
}

// The part of a write that lies in the sectors [first, end) counted from the sector it begins in.
FileOp SectorsOf(const FileOp& write, std::uint64_t first, std::uint64_t end) {
  const std::uint64_t base = write.offset / kSectorBytes * kSectorBytes;
  const std::uint64_t from = std::max(write.offset, base + first * kSectorBytes);
  const std::uint64_t to =
      std::max(from, std::min(write.offset + write.bytes.size(), base + end * kSectorBytes));
  FileOp part = write;
  part.offset = from;
  part.bytes = write.bytes.subspan(from - write.offset, to - from);
  part.byte_count = part.bytes.size();
  return part;
}

std::uint64_t SectorCount(const FileOp& write) {
  const std::uint64_t first = write.offset / kSectorBytes;
  const std::uint64_t end = (write.offset + write.bytes.size() + kSectorBytes - 1) / kSectorBytes;
  return end - first;
}

}  // namespace

// Decides the fate of one change after the other, in the order of the history.
class FaultEnv::Dice {
 public:
  enum class Fate { kApply, kDrop, kTearHalf, kTearRandom };

  Dice(CrashPolicy policy, std::uint64_t seed, const Entry* last_write)
      : policy_(policy), random_(seed), last_write_(last_write) {}

  Fate FateOf(const Entry& entry) {
    switch (policy_) {
      case CrashPolicy::kApplyAll:
        return Fate::kApply;
      case CrashPolicy::kDropAll:
        return Fate::kDrop;
      case CrashPolicy::kTearLast:
        return &entry == last_write_ ? Fate::kTearHalf : Fate::kApply;
      case CrashPolicy::kRandom:
        break;
    }
    const bool may_tear = entry.op.kind == FileOpKind::kWrite;
    constexpr Fate kFates[] = {Fate::kApply, Fate::kDrop, Fate::kTearRandom};
    return kFates[random_() % (may_tear ? 3 : 2)];
  }
  bool Toss() { return (random_() & 1) != 0; }

 private:
  const CrashPolicy policy_;
  std::mt19937_64 random_;
  const Entry* const last_write_;
};

// ---- faults -------------------------------------------------------------------------------------

void FaultEnv::Inject(Fault fault) {
  MutexLock lock(fault_mu_);
  faults_.push_back(std::move(fault));
}

void FaultEnv::ClearFaults() {
  MutexLock lock(fault_mu_);
  faults_.clear();
}

void FaultEnv::SetHook(std::function<void(const FileOp&)> hook) { hook_ = std::move(hook); }

std::uint64_t FaultEnv::sync_count() const {
  MutexLock lock(fault_mu_);
  return sync_count_;
}

std::uint64_t FaultEnv::change_count() const {
  MutexLock lock(fault_mu_);
  return change_count_;
}

void FaultEnv::StopAtSync(std::uint64_t k) {
  MutexLock lock(fault_mu_);
  stop_at_sync_ = k;
}

void FaultEnv::StopAtChange(std::uint64_t k) {
  MutexLock lock(fault_mu_);
  stop_at_change_ = k;
}

bool FaultEnv::stopped() const {
  MutexLock lock(fault_mu_);
  return stopped_;
}

bool FaultEnv::CountAndCheckPower(const FileOp& op) {
  sync_count_ += IsSync(op.kind);
  change_count_ += IsChange(op.kind);
  stopped_ = stopped_ || sync_count_ >= stop_at_sync_ || change_count_ >= stop_at_change_;
  return !stopped_;
}

// The fault that strikes this operation, if any; every fault that is still waiting counts it.
Fault* FaultEnv::MatchFault(const FileOp& op) {
  Fault* struck = nullptr;
  for (Fault& fault : faults_) {
    if (fault.kind != op.kind || op.path.find(fault.path_contains) == std::string::npos) {
      continue;
    }
    if (fault.nth > 1) {
      --fault.nth;
    } else if (fault.repeat > 0) {
      fault.repeat -= fault.repeat != Fault::kForever;
      struck = &fault;
    }
  }
  return struck;
}

MemoryEnv::Verdict FaultEnv::Before(const FileOp& op) {
  Verdict verdict;
  {
    MutexLock lock(fault_mu_);
    if (!CountAndCheckPower(op)) {
      verdict.status = OsError("use (the power is off)", op.path, EIO);
      return verdict;
    }
    if (const Fault* const fault = MatchFault(op)) {
      verdict.status = OsError("use (an injected fault)", op.path, EIO);
      verdict.applied_bytes = fault->applied_bytes;
    }
  }
  if (hook_) {
    hook_(op);
  }
  return verdict;
}

// ---- history ------------------------------------------------------------------------------------

void FaultEnv::After(const FileOp& op) {
  if (IsSync(op.kind)) {
    MarkDurable(op);
    FoldDurable();
    return;
  }
  Entry& entry = history_.emplace_back();
  entry.op = op;
  entry.bytes.assign(op.bytes.begin(), op.bytes.end());
  entry.op.bytes = entry.bytes;
}

void FaultEnv::SyncFailed(NodeId node) {
  for (Entry& entry : history_) {
    entry.in_doubt = entry.in_doubt || (!IsNaming(entry.op.kind) && entry.op.node == node);
  }
}

void FaultEnv::MarkDurable(const FileOp& sync) {
  for (Entry& entry : history_) {
    if (!entry.in_doubt && MadeDurableBy(sync, entry.op)) {
      entry.durable = true;
    }
  }
}

void FaultEnv::FoldDurable() {
  while (!history_.empty() && history_.front().durable) {
    durable_.Apply(history_.front().op);
    history_.pop_front();
  }
}

std::size_t FaultEnv::pending_changes() const {
  MutexLock lock(mu_);
  return static_cast<std::size_t>(std::count_if(history_.begin(), history_.end(),
                                                [](const Entry& entry) { return !entry.durable; }));
}

// ---- crash --------------------------------------------------------------------------------------

void FaultEnv::ApplyAfterCrash(const Entry& entry, Dice& dice, MemoryImage& image) {
  const Dice::Fate fate = entry.durable ? Dice::Fate::kApply : dice.FateOf(entry);
  switch (fate) {
    case Dice::Fate::kApply:
      image.Apply(entry.op);
      break;
    case Dice::Fate::kDrop:
      break;
    case Dice::Fate::kTearHalf:
      image.Apply(SectorsOf(entry.op, 0, SectorCount(entry.op) / 2));
      break;
    case Dice::Fate::kTearRandom:
      for (std::uint64_t sector = 0; sector < SectorCount(entry.op); ++sector) {
        if (dice.Toss()) {
          image.Apply(SectorsOf(entry.op, sector, sector + 1));
        }
      }
      break;
  }
}

std::unique_ptr<FaultEnv> FaultEnv::AfterCrash(CrashPolicy policy, std::uint64_t seed) const {
  auto out = std::make_unique<FaultEnv>();
  MutexLock lock(mu_);
  const Entry* last_write = nullptr;
  for (const Entry& entry : history_) {
    if (!entry.durable && entry.op.kind == FileOpKind::kWrite) {
      last_write = &entry;
    }
  }
  MemoryImage image = durable_;
  Dice dice(policy, seed, last_write);
  for (const Entry& entry : history_) {
    ApplyAfterCrash(entry, dice, image);
  }
  image.DropUnreachable({});
  MutexLock out_lock(out->mu_);
  out->image_ = image;
  out->durable_ = std::move(image);
  out->next_node_ = next_node_;
  out->capacity_bytes_ = capacity_bytes_;
  out->filesystem_ = filesystem_;
  out->now_ = now_;
  return out;
}

}  // namespace skippy
