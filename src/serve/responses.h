// The OpenAI Responses API over the same engine, without what would need the server to keep
// conversations: translation of requests into chat requests, and of replies into output items.
#pragma once

#include <memory>

#include "serve/dialect.h"

namespace skippy {

// The request as a body of chat completions. Errors name the fields that the client used.
ApiResult<Json> ChatBodyOfResponses(const Json& body);

// {"id", "object": "response", "status", "output": [], ...} of an answer that has not ended.
Json ResponseEnvelope(const ReplyHead& head);

// One item of the output each. `id` is the item's.
Json ReasoningItem(const std::string& id, const std::string& text);
Json MessageItem(const std::string& id, const std::string& text);
Json FunctionCallItem(const std::string& id, const ToolCall& call);

// Gives `response` its end: status, output and usage.
void CompleteResponse(const Choice& choice, Json output, const Usage& usage, Json& response);

// The id of the output item `index` of the answer `response_id`.
std::string ItemId(std::string_view kind, const std::string& response_id, int index);

// The answer as events, for Dialect::open_events.
std::unique_ptr<ReplyEvents> OpenResponsesEvents(const ReplyContext& context, StreamSink& sink);

}  // namespace skippy
