#include "serve/api_error.h"

#include "serve/json.h"

namespace skippy {
namespace {

struct ErrorForm {
  int status;
  const char* type;
  const char* code;
};

ErrorForm FormOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {400, "invalid_request_error", "invalid_value"};
    case ErrorCode::kUnsupported:
      return {400, "invalid_request_error", "unsupported"};
    case ErrorCode::kNotFound:
      return {404, "invalid_request_error", "not_found"};
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kBusy:
      return {409, "invalid_request_error", "conflict"};
    case ErrorCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded"};
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return {503, "unavailable_error", "unavailable"};
    case ErrorCode::kDeadlineExceeded:
      return {504, "server_error", "timeout"};
    case ErrorCode::kNoSpace:
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      break;
  }
  return {500, "server_error", "internal_error"};
}

Json NullIfEmpty(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

ApiError InvalidRequest(std::string_view param, std::string message, std::string_view code) {
  return ApiError{400, std::move(message), "invalid_request_error", std::string(param),
                  std::string(code)};
}

ApiError FromError(const Error& error) {
  const ErrorForm form = FormOf(error.code);
  return ApiError{form.status, error.text, form.type, "", form.code};
}

std::string ErrorBody(const ApiError& error) {
  return DumpJson(Json{{"error",
                        {{"message", error.message},
                         {"type", error.type},
                         {"param", NullIfEmpty(error.param)},
                         {"code", NullIfEmpty(error.code)}}}});
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = ErrorBody(error);
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  return response;
}

}  // namespace skippy
