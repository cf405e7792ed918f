// What the APIs differ in: how a request is read, how its answer is written, how it is refused. How
// it runs is the same for all of them.
#pragma once

#include <memory>
#include <string_view>

#include "serve/http_types.h"
#include "serve/openai_request.h"
#include "serve/openai_response.h"
#include "serve/reply_run.h"

namespace skippy {

// A request that runs. What it refers to outlives whoever is given it.
struct ReplyContext {
  const OpenAiRequest& request;
  const ReplyHead& head;
  const ChatFormat& chat;
};

// Writes a reply as server-sent events while it is made. For one thread.
class ReplyEvents {
 public:
  virtual ~ReplyEvents() = default;

  // Each is false when the client is gone.
  virtual bool Begin() = 0;
  virtual bool OnEvent(const Choice& choice, const GenerateEvent& event) = 0;
  virtual bool Finish(const Usage& usage) = 0;
  virtual bool Fail(const ApiError& error) = 0;  // in place of Finish
};

struct Dialect {
  Endpoint endpoint = Endpoint::kChat;
  std::string_view id_prefix;
  ApiResult<OpenAiRequest> (*parse)(const Json& body, const Engine& engine) = nullptr;
  Json (*answer)(const ReplyContext& context, const ReplyRun& run) = nullptr;
  std::unique_ptr<ReplyEvents> (*open_events)(const ReplyContext& context,
                                              StreamSink& sink) = nullptr;
  HttpResponse (*refuse)(const ApiError& error) = nullptr;
};

const Dialect& ChatDialect();
const Dialect& CompletionsDialect();
const Dialect& MessagesDialect();
const Dialect& ResponsesDialect();

}  // namespace skippy
