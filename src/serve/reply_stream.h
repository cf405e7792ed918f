// Chat completions and completions as server-sent events.
#pragma once

#include <string>
#include <vector>

#include "serve/dialect.h"

namespace skippy {

class ReplyStream final : public ReplyEvents {
 public:
  ReplyStream(const ReplyContext& context, StreamSink& sink);

  bool Begin() override;  // chat: the role of every choice; completions: the echo, if asked for
  bool OnEvent(const Choice& choice, const GenerateEvent& event) override;
  bool Finish(const Usage& usage) override;  // usage if asked for, then [DONE]
  bool Fail(const ApiError& error) override;

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
