#include <string>
#include <utility>

#include "serve/anthropic.h"

namespace skippy {
namespace {

class MessagesStream final : public ReplyEvents {
 public:
  MessagesStream(const ReplyContext& context, StreamSink& sink) : context_(context), sink_(sink) {}

  // message_start has the numbers of the prompt, which are not known yet; until then a ping keeps
  // the connection in use.
  bool Begin() override { return Send(Json{{"type", "ping"}}); }

  bool OnEvent(const Choice& choice, const GenerateEvent& event) override {
    if (!started_ && !Start(event.timings)) {
      return false;
    }
    return event.kind == GenerateEvent::Kind::kPromptDone || SendGrowth(choice);
  }

  bool Finish(const Usage& usage) override {
    Json delta{{"stop_reason", stop_reason_}, {"stop_sequence", nullptr}};
    if (stop_reason_ == "stop_sequence") {
      delta["stop_sequence"] = stop_string_;
    }
    Json event{{"type", "message_delta"},
               {"delta", std::move(delta)},
               {"usage", MessagesUsageJson(usage)},
               {"timings", TimingsJson(usage.total, context_.head.id)}};
    return Send(event) && Send(Json{{"type", "message_stop"}});
  }

  bool Fail(const ApiError& error) override { return Send(MessagesErrorJson(error)); }

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  bool Send(const Json& payload) {
    return sink_.Write("event: " + payload.at("type").get<std::string>() + "\n" +
                       SseEvent(payload));
  }

  bool Start(const RequestTimings& timings) {
    started_ = true;
    Usage usage{timings};
    usage.total.generated_tokens = 0;
    return Send(
        Json{{"type", "message_start"}, {"message", MessageEnvelope(context_.head, usage)}});
  }

  bool SendGrowth(const Choice& choice) {
    ReplyMessage now = ReadReply(context_.chat, context_.request.base.reply_format.get(), choice,
                                 context_.head.id);
    for (const ReplyDelta& delta : context_.chat.Diff(sent_, now)) {
      if (!SendDelta(delta)) {
        return false;
      }
    }
    sent_ = std::move(now);
    if (!choice.done) {
      return true;
    }
    stop_reason_ = StopReasonName(choice, context_.request, !sent_.tool_calls.empty());
    stop_string_ = choice.stop_string;
    return CloseBlock();
  }

  bool SendDelta(const ReplyDelta& delta) {
    if (!delta.reasoning.empty() &&
        !(Open(Block::kThinking, Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}) &&
          SendPart(Json{{"type", "thinking_delta"}, {"thinking", delta.reasoning}}))) {
      return false;
    }
    if (!delta.content.empty() &&
        !(Open(Block::kText, Json{{"type", "text"}, {"text", ""}}) &&
          SendPart(Json{{"type", "text_delta"}, {"text", delta.content}}))) {
      return false;
    }
    return delta.tool_call_index < 0 || SendCall(delta.tool_call_index, delta.tool_call);
  }

  bool SendCall(int call_index, const ToolCall& call) {
    if (call_index != call_index_) {
      call_index_ = call_index;
      if (!CloseBlock() || !Open(Block::kToolUse, Json{{"type", "tool_use"},
                                                       {"id", call.id},
                                                       {"name", call.name},
                                                       {"input", Json::object()}})) {
        return false;
      }
    }
    return call.arguments.empty() ||
           SendPart(Json{{"type", "input_json_delta"}, {"partial_json", call.arguments}});
  }

  bool Open(Block block, Json content) {
    if (open_ == block) {
      return true;
    }
    if (!CloseBlock()) {
      return false;
    }
    open_ = block;
    return Send(Json{{"type", "content_block_start"},
                     {"index", block_index_},
                     {"content_block", std::move(content)}});
  }

  bool SendPart(Json delta) {
    return Send(Json{
        {"type", "content_block_delta"}, {"index", block_index_}, {"delta", std::move(delta)}});
  }

  bool CloseBlock() {
    if (open_ == Block::kNone) {
      return true;
    }
    open_ = Block::kNone;
    return Send(Json{{"type", "content_block_stop"}, {"index", block_index_++}});
  }

  const ReplyContext context_;
  StreamSink& sink_;
  bool started_ = false;
  ReplyMessage sent_;
  Block open_ = Block::kNone;
  int block_index_ = 0;  // of the open block, else of the next
  int call_index_ = -1;  // the tool call of the open block
  std::string stop_reason_ = "end_turn";
  std::string stop_string_;
};

}  // namespace

std::unique_ptr<ReplyEvents> OpenMessagesEvents(const ReplyContext& context, StreamSink& sink) {
  return std::make_unique<MessagesStream>(context, sink);
}

}  // namespace skippy
