// errno as an Error.
#pragma once

#include <string>
#include <string_view>

#include "skippy/result.h"

namespace skippy {

ErrorCode CodeOfErrno(int os_errno);

// "cannot WHAT PATH: No space left on device".
Error OsError(std::string_view what, const std::string& path, int os_errno);

}  // namespace skippy
