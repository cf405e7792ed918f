#include "serve/openai_response.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"

namespace skippy {
namespace {

constexpr double kLogprobMin = -9999.0;  // OpenAI's stand-in for minus infinity

double FiniteLogprob(float logprob) {
  return std::isfinite(logprob) ? std::min(0.0, static_cast<double>(logprob)) : kLogprobMin;
}

Json ByteArray(const std::string& piece) {
  Json bytes = Json::array();
  for (const char c : piece) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return bytes;
}

Json ChatLogprob(const TokenLogprob& token) {
  return Json{{"token", token.piece},
              {"logprob", FiniteLogprob(token.logprob)},
              {"bytes", ByteArray(token.piece)}};
}

Json ChatLogprobs(std::span<const GeneratedToken> tokens) {
  Json content = Json::array();
  for (const GeneratedToken& token : tokens) {
    Json entry = ChatLogprob(token.chosen);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top) {
      entry["top_logprobs"].push_back(ChatLogprob(top));
    }
    content.push_back(std::move(entry));
  }
  return Json{{"content", std::move(content)}, {"refusal", nullptr}};
}

Json CompletionLogprobs(std::span<const GeneratedToken> tokens, std::size_t text_offset) {
  Json result{{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const GeneratedToken& token : tokens) {
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      top[other.piece] = FiniteLogprob(other.logprob);
    }
    result["tokens"].push_back(token.chosen.piece);
    result["token_logprobs"].push_back(FiniteLogprob(token.chosen.logprob));
    result["top_logprobs"].push_back(std::move(top));
    result["text_offset"].push_back(text_offset);
    text_offset += token.chosen.piece.size();
  }
  return result;
}

Json FinishJson(std::optional<std::string_view> finish) {
  return finish ? Json(std::string(*finish)) : Json(nullptr);
}

Json ToolCallJson(const ToolCall& call) {
  return Json{{"id", call.id},
              {"type", "function"},
              {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// With one decimal.
std::string Milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", ms);
  return text;
}

double PerSecond(TokenCount tokens, double ms) { return ms > 0 ? tokens * 1000.0 / ms : 0.0; }

}  // namespace

Json UsageJson(const Usage& usage) {
  const RequestTimings& total = usage.total;
  return Json{
      {"prompt_tokens", total.prompt_tokens},
      {"completion_tokens", usage.completion_tokens()},
      {"total_tokens", total.prompt_tokens + usage.completion_tokens()},
      {"prompt_tokens_details",
       {{"cached_tokens", total.cached_tokens()}, {"cache_write_tokens", total.recorded_tokens}}}};
}

Json TimingsJson(const RequestTimings& t, const std::string& request_id) {
  return Json{{"request_id", request_id},
              {"cached_l1", t.cached_l1_tokens},
              {"cached_l2", t.cached_l2_tokens},
              {"cached_l3", t.cached_l3_tokens},
              {"computed", t.computed_tokens},
              {"generated", t.generated_tokens},
              {"recorded", t.recorded_tokens},
              {"queue_ms", t.queue_ms},
              {"lookup_ms", t.lookup_ms},
              {"restore_ms", t.restore_ms},
              {"import_ms", t.import_ms},
              {"prefill_ms", t.prefill_ms},
              {"decode_ms", t.decode_ms},
              {"engine_cpu_ms", t.engine_cpu_ms},
              {"cache_n", t.cached_tokens()},
              {"prompt_n", t.computed_tokens},
              {"prompt_ms", t.prefill_ms},
              {"prompt_per_second", PerSecond(t.computed_tokens, t.prefill_ms)},
              {"predicted_n", t.generated_tokens},
              {"predicted_ms", t.decode_ms},
              {"predicted_per_second", PerSecond(t.generated_tokens, t.decode_ms)}};
}

std::string CacheHeader(const RequestTimings& t) {
  return "l1=" + std::to_string(t.cached_l1_tokens) + ";l2=" + std::to_string(t.cached_l2_tokens) +
         ";l3=" + std::to_string(t.cached_l3_tokens) +
         ";computed=" + std::to_string(t.computed_tokens) +
         ";queue_ms=" + Milliseconds(t.queue_ms) + ";restore_ms=" + Milliseconds(t.restore_ms) +
         ";prefill_ms=" + Milliseconds(t.prefill_ms) + ";decode_ms=" + Milliseconds(t.decode_ms);
}

std::string_view FinishName(FinishReason reason, bool has_tool_calls) {
  if (reason == FinishReason::kLength) {
    return "length";
  }
  return has_tool_calls ? "tool_calls" : "stop";
}

Json LogprobsJson(Endpoint endpoint, std::span<const GeneratedToken> tokens, bool wanted,
                  std::size_t text_offset) {
  if (!wanted) {
    return nullptr;
  }
  return endpoint == Endpoint::kChat ? ChatLogprobs(tokens)
                                     : CompletionLogprobs(tokens, text_offset);
}

Json AnswerEnvelope(const ReplyHead& head, bool chunk) {
  const char* chat_object = chunk ? "chat.completion.chunk" : "chat.completion";
  return Json{{"id", head.id},
              {"object", head.endpoint == Endpoint::kChat ? chat_object : "text_completion"},
              {"created", head.created_s},
              {"model", head.model},
              {"choices", Json::array()}};
}

Json ChatChoiceJson(int index, const ReplyMessage& message, FinishReason finish, Json logprobs) {
  const bool calls_tools = !message.tool_calls.empty();
  Json body{
      {"role", "assistant"},
      {"content", calls_tools && message.content.empty() ? Json(nullptr) : Json(message.content)}};
  if (!message.reasoning.empty()) {
    body["reasoning_content"] = message.reasoning;
  }
  for (const ToolCall& call : message.tool_calls) {
    body["tool_calls"].push_back(ToolCallJson(call));
  }
  return Json{{"index", index},
              {"message", std::move(body)},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", FinishName(finish, calls_tools)}};
}

Json CompletionChoiceJson(int index, const std::string& text,
                          std::optional<std::string_view> finish, Json logprobs) {
  return Json{{"index", index},
              {"text", text},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", FinishJson(finish)}};
}

Json DeltaJson(const ReplyDelta& delta) {
  Json json = Json::object();
  if (!delta.content.empty()) {
    json["content"] = delta.content;
  }
  if (!delta.reasoning.empty()) {
    json["reasoning_content"] = delta.reasoning;
  }
  if (delta.tool_call_index >= 0) {
    Json call{{"index", delta.tool_call_index}};
    const bool opens = !delta.tool_call.name.empty();
    if (opens) {
      call["id"] = delta.tool_call.id;
      call["type"] = "function";
      call["function"]["name"] = delta.tool_call.name;
    }
    call["function"]["arguments"] = delta.tool_call.arguments;
    json["tool_calls"] = Json::array({std::move(call)});
  }
  return json;
}

Json ChatChunkChoiceJson(int index, Json delta, std::optional<std::string_view> finish,
                         Json logprobs) {
  return Json{{"index", index},
              {"delta", std::move(delta)},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", FinishJson(finish)}};
}

ReplyMessage ReadReply(const ChatFormat& chat, const ReplyFormat* format, const Choice& choice,
                       const std::string& reply_id) {
  ReplyMessage message;
  if (format == nullptr) {
    message.content = choice.text;
    return message;
  }
  Result<ReplyMessage> parsed = chat.Parse(format, choice.text, !choice.done);
  if (!parsed) {
    if (choice.done) {
      LogWarning("{}: the reply does not follow the model's format; given as plain text", reply_id);
      message.content = choice.text;
    }
    return message;
  }
  message = std::move(*parsed);
  const std::string_view tail = std::string_view(reply_id).substr(reply_id.find('-') + 1);
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    if (message.tool_calls[i].id.empty()) {
      message.tool_calls[i].id = "call_" + std::string(tail) + "_" + std::to_string(choice.index) +
                                 "_" + std::to_string(i);
    }
  }
  return message;
}

std::string SseEvent(const Json& payload) { return "data: " + DumpJson(payload) + "\n\n"; }

}  // namespace skippy
