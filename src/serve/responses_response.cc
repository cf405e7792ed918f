#include "serve/responses.h"

namespace skippy {
namespace {

ApiResult<OpenAiRequest> ParseResponses(const Json& body, const Engine& engine) {
  ApiResult<Json> chat = ChatBodyOfResponses(body);
  return chat ? ParseChatRequest(*chat, engine) : std::move(chat).error();
}

Json Output(const ReplyMessage& message, const std::string& response_id) {
  Json output = Json::array();
  const auto next = [&](std::string_view kind) {
    return ItemId(kind, response_id, static_cast<int>(output.size()));
  };
  if (!message.reasoning.empty()) {
    output.push_back(ReasoningItem(next("rs"), message.reasoning));
  }
  if (!message.content.empty()) {
    output.push_back(MessageItem(next("msg"), message.content));
  }
  for (const ToolCall& call : message.tool_calls) {
    output.push_back(FunctionCallItem(next("fc"), call));
  }
  return output;
}

Json ResponsesAnswer(const ReplyContext& context, const ReplyRun& run) {
  const Choice& choice = run.choices().front();
  const ReplyMessage message =
      ReadReply(context.chat, context.request.base.reply_format.get(), choice, context.head.id);
  Json answer = ResponseEnvelope(context.head);
  CompleteResponse(choice, Output(message, context.head.id), run.usage(), answer);
  return answer;
}

}  // namespace

std::string ItemId(std::string_view kind, const std::string& response_id, int index) {
  return std::string(kind) + response_id.substr(response_id.find('_')) + "_" +
         std::to_string(index);
}

Json ResponseEnvelope(const ReplyHead& head) {
  return Json{{"id", head.id},
              {"object", "response"},
              {"created_at", head.created_s},
              {"status", "in_progress"},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"instructions", nullptr},
              {"metadata", Json::object()},
              {"model", head.model},
              {"output", Json::array()},
              {"parallel_tool_calls", true},
              {"previous_response_id", nullptr},
              {"store", false},
              {"temperature", nullptr},
              {"tool_choice", "auto"},
              {"tools", Json::array()},
              {"top_p", nullptr},
              {"usage", nullptr}};
}

Json ReasoningItem(const std::string& id, const std::string& text) {
  Json content = Json::array();
  if (!text.empty()) {
    content.push_back(Json{{"type", "reasoning_text"}, {"text", text}});
  }
  return Json{{"id", id},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content", std::move(content)}};
}

Json MessageItem(const std::string& id, const std::string& text) {
  Json part{{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}};
  return Json{{"id", id},
              {"type", "message"},
              {"status", "completed"},
              {"role", "assistant"},
              {"content", Json::array({std::move(part)})}};
}

Json FunctionCallItem(const std::string& id, const ToolCall& call) {
  return Json{{"id", id},           {"type", "function_call"}, {"status", "completed"},
              {"call_id", call.id}, {"name", call.name},       {"arguments", call.arguments}};
}

void CompleteResponse(const Choice& choice, Json output, const Usage& usage, Json& response) {
  const RequestTimings& total = usage.total;
  response["status"] = "completed";
  if (choice.finish == FinishReason::kLength) {
    response["status"] = "incomplete";
    response["incomplete_details"] = Json{{"reason", "max_output_tokens"}};
  }
  response["output"] = std::move(output);
  response["usage"] = Json{
      {"input_tokens", total.prompt_tokens},
      {"input_tokens_details",
       {{"cached_tokens", total.cached_tokens()}, {"cache_write_tokens", total.recorded_tokens}}},
      {"output_tokens", usage.completion_tokens()},
      {"output_tokens_details", {{"reasoning_tokens", 0}}},
      {"total_tokens", total.prompt_tokens + usage.completion_tokens()}};
}

const Dialect& ResponsesDialect() {
  static const Dialect dialect{Endpoint::kResponses, "resp_",      ParseResponses, ResponsesAnswer,
                               OpenResponsesEvents,  ErrorResponse};
  return dialect;
}

}  // namespace skippy
