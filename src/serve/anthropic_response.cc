#include <algorithm>

#include "serve/anthropic.h"

namespace skippy {
namespace {

std::string_view ErrorType(const ApiError& error) {
  switch (error.status) {
    case 400:
      return "invalid_request_error";
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
    case 405:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return "api_error";
  }
}

ApiResult<OpenAiRequest> ParseMessages(const Json& body, const Engine& engine) {
  ApiResult<Json> chat = ChatBodyOfMessages(body);
  if (!chat) {
    return std::move(chat).error();
  }
  if (FindMember(body, "max_tokens") == nullptr) {
    return InvalidRequest("max_tokens", "'max_tokens' is required", "missing_required_parameter");
  }
  return ParseChatRequest(*chat, engine);
}

Json Content(const ReplyMessage& message) {
  Json content = Json::array();
  if (!message.reasoning.empty()) {
    content.push_back(
        Json{{"type", "thinking"}, {"thinking", message.reasoning}, {"signature", ""}});
  }
  if (!message.content.empty()) {
    content.push_back(Json{{"type", "text"}, {"text", message.content}});
  }
  for (const ToolCall& call : message.tool_calls) {
    content.push_back(Json{{"type", "tool_use"},
                           {"id", call.id},
                           {"name", call.name},
                           {"input", ToolInput(call.arguments)}});
  }
  return content;
}

Json MessagesAnswer(const ReplyContext& context, const ReplyRun& run) {
  const Choice& choice = run.choices().front();
  const ReplyMessage message =
      ReadReply(context.chat, context.request.base.reply_format.get(), choice, context.head.id);
  Json answer = MessageEnvelope(context.head, run.usage());
  const std::string_view reason =
      StopReasonName(choice, context.request, !message.tool_calls.empty());
  answer["content"] = Content(message);
  answer["stop_reason"] = reason;
  if (reason == "stop_sequence") {
    answer["stop_sequence"] = choice.stop_string;
  }
  return answer;
}

}  // namespace

Json ToolInput(const std::string& arguments) {
  Json input = Json::parse(arguments, nullptr, false);
  return input.is_object() ? input : Json::object();
}

std::string_view StopReasonName(const Choice& choice, const OpenAiRequest& request,
                                bool has_calls) {
  if (choice.finish == FinishReason::kLength) {
    return "max_tokens";
  }
  if (has_calls) {
    return "tool_use";
  }
  const auto begin = request.base.stop.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(request.client_stop_count);
  const bool asked_for =
      !choice.stop_string.empty() && std::find(begin, end, choice.stop_string) != end;
  return asked_for ? "stop_sequence" : "end_turn";
}

Json MessagesUsageJson(const Usage& usage) {
  const RequestTimings& total = usage.total;
  // What was recorded may go on into the reply.
  const TokenCount created = std::min(total.recorded_tokens, total.computed_tokens);
  return Json{{"input_tokens", total.computed_tokens - created},
              {"cache_creation_input_tokens", created},
              {"cache_read_input_tokens", total.cached_tokens()},
              {"output_tokens", usage.completion_tokens()}};
}

Json MessageEnvelope(const ReplyHead& head, const Usage& usage) {
  return Json{{"id", head.id},
              {"type", "message"},
              {"role", "assistant"},
              {"model", head.model},
              {"content", Json::array()},
              {"stop_reason", nullptr},
              {"stop_sequence", nullptr},
              {"usage", MessagesUsageJson(usage)}};
}

Json MessagesErrorJson(const ApiError& error) {
  return Json{{"type", "error"},
              {"error", {{"type", ErrorType(error)}, {"message", error.message}}}};
}

HttpResponse MessagesErrorResponse(const ApiError& error) {
  HttpResponse response = ErrorResponse(error);  // status and headers
  response.body = DumpJson(MessagesErrorJson(error));
  return response;
}

const Dialect& MessagesDialect() {
  static const Dialect dialect{Endpoint::kMessages, "msg_",
                               ParseMessages,       MessagesAnswer,
                               OpenMessagesEvents,  MessagesErrorResponse};
  return dialect;
}

}  // namespace skippy
