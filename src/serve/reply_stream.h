// Writes a reply as server-sent events while it is made.
#pragma once

#include <string>
#include <vector>

#include "serve/http_types.h"
#include "serve/openai_response.h"

namespace skippy {

// For one thread. References outlive it.
class ReplyStream {
 public:
  ReplyStream(const OpenAiRequest& request, const ReplyHead& head, const ChatFormat& chat,
              StreamSink& sink);

  // Each is false when the client is gone.
  bool Begin();  // chat: the role of every choice; completions: the echo, if asked for
  bool OnEvent(const Choice& choice, const GenerateEvent& event);
  bool Finish(const Usage& usage);   // usage if asked for, then [DONE]
  bool Fail(const ApiError& error);  // in place of Finish

 private:
  // What of a choice was sent.
  struct Sent {
    ReplyMessage message;
    std::size_t tokens = 0;      // with logprobs
    std::size_t text_bytes = 0;  // completions: where the next token stands
  };

  bool SendChunk(Json choice, const RequestTimings* timings);
  bool SendChatGrowth(const Choice& choice);
  bool SendChatDelta(const Choice& choice, Json delta, std::optional<std::string_view> finish);
  bool SendText(const Choice& choice, const std::string& text,
                std::optional<std::string_view> finish);
  // The logprobs that were not sent yet.
  Json TakeLogprobs(const Choice& choice);

  const OpenAiRequest& request_;
  const ReplyHead& head_;
  const ChatFormat& chat_;
  StreamSink& sink_;
  std::vector<Sent> sent_;  // by choice
};

}  // namespace skippy
