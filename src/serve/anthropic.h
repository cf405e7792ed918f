// The Anthropic Messages API over the same engine: translation of requests into the form that the
// chat templates know, and of replies into content blocks.
#pragma once

#include <string>
#include <string_view>

#include "serve/dialect.h"

namespace skippy {

// The request as a body of chat completions. Errors name the fields that the client used.
ApiResult<Json> ChatBodyOfMessages(const Json& body);

// "end_turn", "max_tokens", "stop_sequence", "tool_use".
std::string_view StopReasonName(const Choice& choice, const OpenAiRequest& request, bool has_calls);

// input_tokens, cache_creation_input_tokens and cache_read_input_tokens add up to the prompt: what
// was computed and not recorded, computed and recorded, and found in the cache.
Json MessagesUsageJson(const Usage& usage);

// {"type": "error", "error": {"type", "message"}}
HttpResponse MessagesErrorResponse(const ApiError& error);
Json MessagesErrorJson(const ApiError& error);

// The answer as events, for Dialect::open_events.
std::unique_ptr<ReplyEvents> OpenMessagesEvents(const ReplyContext& context, StreamSink& sink);

// {"id", "type": "message", "role", "model", "content": [], ...} of an unfinished answer.
Json MessageEnvelope(const ReplyHead& head, const Usage& usage);

// The arguments of a call as the object that clients expect; {} when the model wrote none.
Json ToolInput(const std::string& arguments);

}  // namespace skippy
