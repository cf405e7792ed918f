#include "env/os_error.h"

#include <cerrno>
#include <system_error>

namespace skippy {

ErrorCode CodeOfErrno(int os_errno) {
  switch (os_errno) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::kNoSpace;
    case EAGAIN:
    case EBUSY:
    case ENOTEMPTY:
      return ErrorCode::kBusy;
    case EOPNOTSUPP:
    case ENOSYS:
      return ErrorCode::kUnsupported;
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kIo;
  }
}

Error OsError(std::string_view what, const std::string& path, int os_errno) {
  return MakeError(CodeOfErrno(os_errno),
                   std::string("cannot ").append(what) + " " + path + ": " +
                       std::generic_category().message(os_errno),
                   os_errno);
}

}  // namespace skippy
