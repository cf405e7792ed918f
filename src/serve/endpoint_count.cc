#include "serve/anthropic.h"
#include "serve/endpoints.h"

namespace skippy {

// A prompt that is longer than the context is counted too.
HttpResponse AnswerCountTokens(Engine& engine, const HttpRequest& request) {
  const ApiResult<Json> body = ParseJsonObject(request.body);
  const ApiResult<Json> chat = body ? ChatBodyOfMessages(*body) : body;
  if (!chat) {
    return MessagesErrorResponse(chat.error());
  }
  const ApiResult<ChatRequest> input = ParseChatTemplateInput(*chat);
  if (!input) {
    return MessagesErrorResponse(input.error());
  }
  const Result<ChatPrompt> prompt = engine.chat().Apply(*input);
  if (!prompt) {
    return MessagesErrorResponse(FromError(prompt.error()));
  }
  HttpResponse response;
  response.body = DumpJson(Json{{"input_tokens", prompt->tokens.size()}});
  return response;
}

}  // namespace skippy
