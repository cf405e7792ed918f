#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "serve/endpoints.h"
#include "serve/json.h"
#include "serve/openai_request.h"

namespace skippy {
namespace {

constexpr std::size_t kInputsMax = 2048;

static_assert(std::endian::native == std::endian::little, "clients read little-endian floats");

std::string Base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      const bool present = i + k < bytes.size();
      group = group << 8 | (present ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool present = i + k < bytes.size() + 1;
      text.push_back(present ? kDigits[group >> (18 - 6 * k) & 63U] : '=');
    }
  }
  return text;
}

Json ValuesJson(const std::vector<float>& values, bool base64) {
  if (!base64) {
    return values;
  }
  return Base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

ApiResult<Json> Embeddings(Engine& engine, const HttpRequest& request) {
  ApiResult<Json> body = ParseJsonObject(request.body);
  if (!body) {
    return std::move(body).error();
  }
  if (ApiStatus valid = ValidateFields(*body, Endpoint::kEmbeddings); !valid) {
    return std::move(valid).error();
  }
  const std::string format = GetString(*body, "encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    return InvalidRequest("encoding_format", "'encoding_format' must be float or base64");
  }
  ApiResult<std::vector<PreparedPrompt>> inputs =
      ParsePrompts(*body, {"input", kInputsMax}, engine.chat());
  if (!inputs) {
    return std::move(inputs).error();
  }
  const ModelInfo info = engine.Info();
  Json data = Json::array();
  std::size_t token_count = 0;
  for (const PreparedPrompt& input : *inputs) {
    if (input.tokens.size() > static_cast<std::size_t>(info.context_tokens)) {
      return InvalidRequest("input",
                            "an input has " + std::to_string(input.tokens.size()) +
                                " tokens, which does not fit this server's context of " +
                                std::to_string(info.context_tokens) + " tokens",
                            "context_length_exceeded");
    }
    if (request.client_gone && request.client_gone()) {
      return FromError(MakeError(ErrorCode::kCancelled, "the request was cancelled"));
    }
    const Result<std::vector<float>> values = engine.Embed(input.tokens);
    if (!values) {
      return FromError(values.error());
    }
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", ValuesJson(*values, format == "base64")}});
    token_count += input.tokens.size();
  }
  return Json{{"object", "list"},
              {"data", std::move(data)},
              {"model", GetString(*body, "model").value_or(info.name)},
              {"usage", {{"prompt_tokens", token_count}, {"total_tokens", token_count}}}};
}

}  // namespace

HttpResponse AnswerEmbeddings(Engine& engine, const HttpRequest& request) {
  const ModelInfo info = engine.Info();
  if (!info.embeds) {
    return ErrorResponse(
        ApiError{501, "the loaded model, " + info.name + ", generates text and makes no embeddings",
                 "invalid_request_error", "model", "embeddings_not_supported"});
  }
  const ApiResult<Json> answer = Embeddings(engine, request);
  if (!answer) {
    return ErrorResponse(answer.error());
  }
  HttpResponse response;
  response.body = DumpJson(*answer);
  return response;
}

}  // namespace skippy
