// From what the engine made to the JSON that OpenAI clients read. Pure formatting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "serve/json.h"
#include "serve/openai_schema.h"
#include "serve/reply_run.h"

namespace skippy {

// What all answers and chunks of one request begin with.
struct ReplyHead {
  Endpoint endpoint = Endpoint::kChat;
  std::string id;
  std::string model;
  std::int64_t created_s = 0;  // since the epoch
};

Json UsageJson(const Usage& usage);
// Tokens by where they came from and milliseconds by phase; llama-server's names beside ours.
Json TimingsJson(const RequestTimings& timings, const std::string& request_id);
// "l1=..;l2=..;l3=..;computed=.."
std::string CacheHeader(const RequestTimings& timings);

// "stop", "length", "tool_calls".
std::string_view FinishName(FinishReason reason, bool has_tool_calls);

// Null when no logprobs were asked for. `text_offset` is where the first token stands in the
// choice's text (completions only).
Json LogprobsJson(Endpoint endpoint, std::span<const GeneratedToken> tokens, bool wanted,
                  std::size_t text_offset);

// {"id", "object", "created", "model", "choices": []}; `chunk`: of a stream.
Json AnswerEnvelope(const ReplyHead& head, bool chunk);

Json ChatChoiceJson(int index, const ReplyMessage& message, FinishReason finish, Json logprobs);
Json CompletionChoiceJson(int index, const std::string& text,
                          std::optional<std::string_view> finish, Json logprobs);

// Streamed: the delta that stands for what grew.
Json DeltaJson(const ReplyDelta& delta);
Json ChatChunkChoiceJson(int index, Json delta, std::optional<std::string_view> finish,
                         Json logprobs);

// Reads the finished or growing reply of a choice. A reply that the model's format does not explain
// is given as plain content. Tool calls without an id get one that is made of `reply_id`.
ReplyMessage ReadReply(const ChatFormat& chat, const ReplyFormat* format, const Choice& choice,
                       const std::string& reply_id);

// "data: ...\n\n"
std::string SseEvent(const Json& payload);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace skippy
