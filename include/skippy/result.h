// Errors as values. A miss is not an error and a refusal has a reason of its own (see
// RefusalReason in stats.h); Error is for what the caller has to know about.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace skippy {

// Closed set; the same words appear in status, metrics and logs (see ToString).
enum class ErrorCode {
  kInvalidArgument,     // the caller's mistake: names the field and what was expected
  kNotFound,            // the named thing does not exist
  kAlreadyExists,       // the named thing exists and may not be replaced
  kBusy,                // held by somebody else (owner lock, pinned entry)
  kResourceExhausted,   // a bound was reached: queue, budget, lanes
  kNoSpace,             // the file system or the budget has no room for this write
  kUnavailable,         // the service is not in a state to answer (loading, stopping, disabled)
  kIo,                  // the operating system failed; os_errno says how
  kCorrupt,             // bytes are not what was written
  kUnsupported,         // understood, but not possible here (format version, architecture)
  kCancelled,           // the caller withdrew
  kDeadlineExceeded,    // ran out of time
  kInternal,            // our bug, caught
};

// "invalid_argument", "not_found", ...
std::string_view ToString(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;  // one line, for people: what was done, to what, and why it failed
  int os_errno = 0;  // 0 when the operating system was not involved

  // The same error with "context: " before its text; context says what the caller was doing.
  Error WithContext(std::string_view context) const {
    return Error{code, std::string(context) + ": " + text, os_errno};
  }
};

// A value or an Error. Unlike tl::expected itself it must not be ignored.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  Result(Error error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT: return Error{...}
};

using Status = Result<void>;

inline Error MakeError(ErrorCode code, std::string text, int os_errno = 0) {
  return Error{code, std::move(text), os_errno};
}

}  // namespace skippy

// Returns the error of `expr` (a Result or Status) from the enclosing function, if it has one.
#define SKIPPY_RETURN_IF_ERROR(expr)                        \
  do {                                                      \
    if (auto skippy_status = (expr); !skippy_status) {      \
      return std::move(skippy_status).error();              \
    }                                                       \
  } while (false)

#define SKIPPY_CONCAT_INNER(a, b) a##b
#define SKIPPY_CONCAT(a, b) SKIPPY_CONCAT_INNER(a, b)
// Declares or assigns `lhs` from the value of `expr`, or returns its error.
#define SKIPPY_ASSIGN_OR_RETURN(lhs, expr) \
  SKIPPY_ASSIGN_OR_RETURN_IMPL(SKIPPY_CONCAT(skippy_result_, __LINE__), lhs, expr)
#define SKIPPY_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp) {                                        \
    return std::move(tmp).error();                   \
  }                                                  \
  lhs = std::move(*tmp)
