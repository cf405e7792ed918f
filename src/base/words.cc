// The words of the public enumerations.
#include "base/check.h"
#include "skippy/result.h"
#include "skippy/stats.h"

namespace skippy {

std::string_view ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kAlreadyExists: return "already_exists";
    case ErrorCode::kBusy: return "busy";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kNoSpace: return "no_space";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kInternal: return "internal";
  }
  CheckFailed(__FILE__, __LINE__, "ErrorCode", "not an enumerator");
}

std::string_view ToString(TierState state) {
  switch (state) {
    case TierState::kOff: return "off";
    case TierState::kOpening: return "opening";
    case TierState::kActive: return "active";
    case TierState::kReadOnlyLowSpace: return "read_only_low_space";
    case TierState::kPruningToBudget: return "pruning_to_budget";
    case TierState::kDegraded: return "degraded";
  }
  CheckFailed(__FILE__, __LINE__, "TierState", "not an enumerator");
}

std::string_view ToString(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kNone: return "none";
    case RefusalReason::kSkippedOversize: return "skipped_oversize";
    case RefusalReason::kInsufficientSpace: return "insufficient_space";
    case RefusalReason::kReadOnlyLowSpace: return "read_only_low_space";
    case RefusalReason::kQueueFull: return "queue_full";
    case RefusalReason::kStorageError: return "storage_error";
    case RefusalReason::kDisabled: return "disabled";
  }
  CheckFailed(__FILE__, __LINE__, "RefusalReason", "not an enumerator");
}

std::string_view ToString(RemovalCause cause) {
  switch (cause) {
    case RemovalCause::kEviction: return "eviction";
    case RemovalCause::kPrune: return "prune";
    case RemovalCause::kClear: return "clear";
    case RemovalCause::kDamage: return "damage";
    case RemovalCause::kDropped: return "dropped";
  }
  CheckFailed(__FILE__, __LINE__, "RemovalCause", "not an enumerator");
}

}  // namespace skippy
