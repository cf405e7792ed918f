#include <string>
#include <utility>

#include "serve/responses.h"

namespace skippy {
namespace {

class ResponsesStream final : public ReplyEvents {
 public:
  ResponsesStream(const ReplyContext& context, StreamSink& sink)
      : context_(context), sink_(sink), response_(ResponseEnvelope(context.head)) {}

  bool Begin() override {
    return Send("response.created", Json{{"response", response_}}) &&
           Send("response.in_progress", Json{{"response", response_}});
  }

  bool OnEvent(const Choice& choice, const GenerateEvent& event) override {
    if (event.kind == GenerateEvent::Kind::kPromptDone) {
      return true;
    }
    ReplyMessage now = ReadReply(context_.chat, context_.request.base.reply_format.get(), choice,
                                 context_.head.id);
    for (const ReplyDelta& delta : context_.chat.Diff(sent_, now)) {
      if (!SendDelta(delta)) {
        return false;
      }
    }
    sent_ = std::move(now);
    last_ = choice.done ? &choice : nullptr;
    return !choice.done || Close();
  }

  bool Finish(const Usage& usage) override {
    CompleteResponse(*last_, output_, usage, response_);
    response_["timings"] = TimingsJson(usage.total, context_.head.id);
    const bool complete = response_["status"] == "completed";
    return Send(complete ? "response.completed" : "response.incomplete",
                Json{{"response", response_}});
  }

  bool Fail(const ApiError& error) override {
    response_["status"] = "failed";
    response_["error"] = Json{{"code", error.code}, {"message", error.message}};
    return Send("response.failed", Json{{"response", response_}});
  }

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  bool Send(const std::string& type, const Json& fields) {
    Json event{{"type", type}, {"sequence_number", sequence_number_++}};
    event.update(fields);
    return sink_.Write("event: " + type + "\n" + SseEvent(event));
  }

  // An event about the open item, which `fields` say more of.
  bool SendOfItem(const std::string& type, const Json& fields) {
    Json all{{"item_id", item_id_}, {"output_index", output_.size()}};
    if (open_ != Item::kCall) {
      all["content_index"] = 0;
    }
    all.update(fields);
    return Send(type, all);
  }

  bool SendDelta(const ReplyDelta& delta) {
    if (!delta.reasoning.empty() &&
        !(Open(Item::kReasoning) && SendText("response.reasoning_text.delta", delta.reasoning))) {
      return false;
    }
    if (!delta.content.empty() &&
        !(Open(Item::kMessage) && SendText("response.output_text.delta", delta.content))) {
      return false;
    }
    if (delta.tool_call_index < 0) {
      return true;
    }
    if (delta.tool_call_index != call_index_) {
      call_index_ = delta.tool_call_index;
      if (!Close()) {
        return false;
      }
      call_ = delta.tool_call;
      call_.arguments.clear();
    }
    return Open(Item::kCall) &&
           (delta.tool_call.arguments.empty() ||
            SendText("response.function_call_arguments.delta", delta.tool_call.arguments));
  }

  bool SendText(const std::string& type, const std::string& text) {
    text_ += text;
    return SendOfItem(type, open_ == Item::kMessage
                                ? Json{{"delta", text}, {"logprobs", Json::array()}}
                                : Json{{"delta", text}});
  }

  bool Open(Item item) {
    if (open_ == item) {
      return true;
    }
    if (!Close()) {
      return false;
    }
    open_ = item;
    text_.clear();
    item_id_ = ItemId(Kind(), context_.head.id, static_cast<int>(output_.size()));
    Json opened = OpenItem();
    opened["status"] = "in_progress";
    if (item == Item::kMessage) {
      opened["content"] = Json::array();
    }
    const bool sent = Send("response.output_item.added",
                           Json{{"output_index", output_.size()}, {"item", std::move(opened)}});
    return sent && (item != Item::kMessage ||
                    SendOfItem("response.content_part.added", Json{{"part", Part()}}));
  }

  bool Close() {
    if (open_ == Item::kNone) {
      return true;
    }
    if (!SendDone()) {
      return false;
    }
    Json done = OpenItem();
    const bool sent =
        Send("response.output_item.done", Json{{"output_index", output_.size()}, {"item", done}});
    output_.push_back(std::move(done));
    open_ = Item::kNone;
    return sent;
  }

  bool SendDone() {
    switch (open_) {
      case Item::kMessage:
        return SendOfItem("response.output_text.done",
                          Json{{"text", text_}, {"logprobs", Json::array()}}) &&
               SendOfItem("response.content_part.done", Json{{"part", Part()}});
      case Item::kReasoning:
        return SendOfItem("response.reasoning_text.done", Json{{"text", text_}});
      case Item::kCall:
        return SendOfItem("response.function_call_arguments.done",
                          Json{{"name", call_.name}, {"arguments", text_}});
      case Item::kNone:
        break;
    }
    return true;
  }

  std::string_view Kind() const {
    if (open_ == Item::kMessage) {
      return "msg";
    }
    return open_ == Item::kCall ? "fc" : "rs";
  }

  // The open item with what it has so far.
  Json OpenItem() {
    if (open_ == Item::kMessage) {
      return MessageItem(item_id_, text_);
    }
    if (open_ == Item::kReasoning) {
      return ReasoningItem(item_id_, text_);
    }
    call_.arguments = text_;
    return FunctionCallItem(item_id_, call_);
  }

  Json Part() const {
    return Json{{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
  }

  const ReplyContext context_;
  StreamSink& sink_;
  Json response_;
  Json output_ = Json::array();  // the items that are complete
  int sequence_number_ = 0;
  ReplyMessage sent_;
  const Choice* last_ = nullptr;  // owned by the run, which outlives this
  Item open_ = Item::kNone;
  std::string item_id_;
  std::string text_;  // of the open item
  ToolCall call_;     // of the open item
  int call_index_ = -1;
};

}  // namespace

std::unique_ptr<ReplyEvents> OpenResponsesEvents(const ReplyContext& context, StreamSink& sink) {
  return std::make_unique<ResponsesStream>(context, sink);
}

}  // namespace skippy
