// Errors as OpenAI clients expect them: an HTTP status and {"error": {message, type, param, code}}.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "serve/http_types.h"
#include "skippy/result.h"

namespace skippy {

struct ApiError {
  int status = 500;
  std::string message;
  std::string type = "server_error";
  std::string param;  // the request's field that is to blame; empty: none
  std::string code;   // for programs; empty: none
};

// A value or an ApiError; must not be ignored.
template <class T>
class [[nodiscard]] ApiResult : public tl::expected<T, ApiError> {
 public:
  using Base = tl::expected<T, ApiError>;
  using Base::Base;
  ApiResult(ApiError error)  // NOLINT: return ApiError{...}
      : Base(tl::unexpect, std::move(error)) {}
};
using ApiStatus = ApiResult<void>;

// 400, the caller's mistake. `param` names the field, "" for none.
ApiError InvalidRequest(std::string_view param, std::string message,
                        std::string_view code = "invalid_value");

// The status and type that stand for an error of the engine.
ApiError FromError(const Error& error);

// {"error": {...}} on one line.
std::string ErrorBody(const ApiError& error);

// Always JSON, also when a stream was asked for. 429 and 503 say when to come back.
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace skippy
