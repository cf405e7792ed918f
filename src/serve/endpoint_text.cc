#include "serve/endpoints.h"
#include "serve/json.h"
#include "serve/openai_request.h"

namespace skippy {
namespace {

HttpResponse JsonResponse(const Json& body) {
  HttpResponse response;
  response.body = DumpJson(body);
  return response;
}

Json ModelJson(const ModelInfo& info) {
  return Json{{"id", info.name},
              {"object", "model"},
              {"created", 0},
              {"owned_by", "skippy"},
              {"meta",
               {{"architecture", info.architecture},
                {"family", info.family},
                {"n_vocab", info.vocabulary},
                {"n_ctx", info.context_tokens},
                {"n_ctx_train", info.train_context_tokens},
                {"n_embd", info.embedding},
                {"n_params", info.parameter_count},
                {"size", info.weight_bytes}}}};
}

ApiError MissingField(const char* name, const char* expected) {
  return InvalidRequest(name, std::string("'") + name + "' must be " + expected, "invalid_type");
}

// A flag of the helpers, which have no field table; other types count as absent.
bool Flag(const Json& body, const char* name, bool fallback) {
  const Json* value = FindMember(body, name);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

Json TokenJson(const ChatFormat& chat, Token token, bool with_piece) {
  return with_piece ? Json{{"id", token}, {"piece", chat.Piece(token)}} : Json(token);
}

}  // namespace

HttpResponse AnswerModels(Engine& engine, const HttpRequest& request) {
  const ModelInfo info = engine.Info();
  const auto wanted = request.path_params.find("model");
  if (wanted == request.path_params.end()) {
    return JsonResponse(Json{{"object", "list"}, {"data", Json::array({ModelJson(info)})}});
  }
  if (wanted->second != info.name) {
    return ErrorResponse(
        ApiError{404, "no such model", "invalid_request_error", "model", "model_not_found"});
  }
  return JsonResponse(ModelJson(info));
}

HttpResponse AnswerExplain(const Serving& serving, const HttpRequest& request) {
  const auto id = request.path_params.find("request");
  const std::optional<Explanation> found =
      serving.explain.Find(id == request.path_params.end() ? "" : id->second);
  if (!found) {
    return ErrorResponse(ApiError{404,
                                  "no such request among the last " +
                                      std::to_string(ExplainLog::kRequestsMax) +
                                      "; its id is in the answer and in the header X-Request-Id",
                                  "invalid_request_error", "request_id", "not_found"});
  }
  const std::shared_ptr<const SeenPrompt> prompt = found->prompt.lock();
  if (!found->may_be_lost || prompt == nullptr) {
    return JsonResponse(found->body);
  }
  return JsonResponse(
      WithHistory(*found, serving.engine.FindHistory(prompt->name_space, prompt->tokens)));
}

HttpResponse AnswerTokenize(Engine& engine, const HttpRequest& request) {
  const ApiResult<Json> body = ParseJsonObject(request.body);
  if (!body) {
    return ErrorResponse(body.error());
  }
  const Json* content = FindMember(*body, "content");
  if (content == nullptr || !content->is_string()) {
    return ErrorResponse(MissingField("content", "a string"));
  }
  const Result<std::vector<Token>> tokens =
      engine.chat().Tokenize(content->get_ref<const std::string&>(),
                             Flag(*body, "add_special", false), Flag(*body, "parse_special", true));
  if (!tokens) {
    return ErrorResponse(FromError(tokens.error()));
  }
  Json list = Json::array();
  for (const Token token : *tokens) {
    list.push_back(TokenJson(engine.chat(), token, Flag(*body, "with_pieces", false)));
  }
  return JsonResponse(Json{{"tokens", std::move(list)}});
}

HttpResponse AnswerDetokenize(Engine& engine, const HttpRequest& request) {
  const ApiResult<Json> body = ParseJsonObject(request.body);
  if (!body) {
    return ErrorResponse(body.error());
  }
  const Json* list = FindMember(*body, "tokens");
  if (list == nullptr || !list->is_array()) {
    return ErrorResponse(MissingField("tokens", "an array of token ids"));
  }
  std::vector<Token> tokens;
  for (const Json& id : *list) {
    const std::int64_t number = id.is_number_integer() ? id.get<std::int64_t>() : -1;
    if (number < 0 || number > INT32_MAX ||
        !engine.chat().IsValidToken(static_cast<Token>(number))) {
      return ErrorResponse(MissingField("tokens", "an array of token ids of the model"));
    }
    tokens.push_back(static_cast<Token>(number));
  }
  return JsonResponse(Json{{"content", engine.chat().Detokenize(tokens)}});
}

HttpResponse AnswerApplyTemplate(Engine& engine, const HttpRequest& request) {
  const ApiResult<Json> body = ParseJsonObject(request.body);
  if (!body) {
    return ErrorResponse(body.error());
  }
  if (const ApiStatus valid = ValidateFields(*body, Endpoint::kChat); !valid) {
    return ErrorResponse(valid.error());
  }
  const ApiResult<ChatRequest> chat = ParseChatTemplateInput(*body);
  if (!chat) {
    return ErrorResponse(chat.error());
  }
  const Result<ChatPrompt> prompt = engine.chat().Apply(*chat);
  if (!prompt) {
    return ErrorResponse(FromError(prompt.error()));
  }
  return JsonResponse(Json{{"prompt", prompt->text}});
}

}  // namespace skippy
