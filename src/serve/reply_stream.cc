#include "serve/reply_stream.h"

namespace skippy {

ReplyStream::ReplyStream(const ReplyContext& context, StreamSink& sink)
    : request_(context.request),
      head_(context.head),
      chat_(context.chat),
      sink_(sink),
      sent_(request_.prompts.size() * static_cast<std::size_t>(request_.choices_per_prompt)) {}

bool ReplyStream::SendChunk(Json choice, const RequestTimings* timings) {
  Json chunk = AnswerEnvelope(head_, true);
  chunk["choices"].push_back(std::move(choice));
  if (request_.include_usage) {
    chunk["usage"] = nullptr;
  }
  if (timings != nullptr) {
    chunk["timings"] = TimingsJson(*timings, head_.id);
  }
  return sink_.Write(SseEvent(chunk));
}

bool ReplyStream::Begin() {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (request_.endpoint == Endpoint::kChat) {
      Json delta{{"role", "assistant"}, {"content", ""}};
      if (!SendChunk(ChatChunkChoiceJson(index, std::move(delta), std::nullopt, nullptr),
                     nullptr)) {
        return false;
      }
      continue;
    }
    const std::size_t prompt = i / static_cast<std::size_t>(request_.choices_per_prompt);
    const std::string& echo = request_.prompts[prompt].echo_text;
    if (!echo.empty() &&
        !SendChunk(CompletionChoiceJson(index, echo, std::nullopt, nullptr), nullptr)) {
      return false;
    }
  }
  return true;
}

Json ReplyStream::TakeLogprobs(const Choice& choice) {
  Sent& sent = sent_[static_cast<std::size_t>(choice.index)];
  const std::span<const GeneratedToken> fresh = std::span(choice.tokens).subspan(sent.tokens);
  const bool wanted = request_.base.top_logprobs >= 0 && !fresh.empty();
  Json logprobs = LogprobsJson(request_.endpoint, fresh, wanted, sent.text_bytes);
  for (const GeneratedToken& token : fresh) {
    sent.text_bytes += token.chosen.piece.size();
  }
  sent.tokens = choice.tokens.size();
  return logprobs;
}

bool ReplyStream::OnEvent(const Choice& choice, const GenerateEvent& event) {
  if (event.kind == GenerateEvent::Kind::kPromptDone) {
    return true;
  }
  if (request_.endpoint == Endpoint::kChat) {
    return SendChatGrowth(choice);
  }
  if (!event.text.empty() && !SendText(choice, event.text, std::nullopt)) {
    return false;
  }
  return !choice.done || SendText(choice, "", FinishName(choice.finish, false));
}

bool ReplyStream::SendText(const Choice& choice, const std::string& text,
                           std::optional<std::string_view> finish) {
  return SendChunk(CompletionChoiceJson(choice.index, text, finish, TakeLogprobs(choice)),
                   finish ? &choice.timings : nullptr);
}

bool ReplyStream::SendChatGrowth(const Choice& choice) {
  Sent& sent = sent_[static_cast<std::size_t>(choice.index)];
  ReplyMessage now = ReadReply(chat_, request_.base.reply_format.get(), choice, head_.id);
  for (const ReplyDelta& delta : chat_.Diff(sent.message, now)) {
    if (!SendChatDelta(choice, DeltaJson(delta), std::nullopt)) {
      return false;
    }
  }
  sent.message = std::move(now);
  if (!choice.done) {
    return true;
  }
  const bool calls_tools = !sent.message.tool_calls.empty();
  return SendChatDelta(choice, Json::object(), FinishName(choice.finish, calls_tools));
}

bool ReplyStream::SendChatDelta(const Choice& choice, Json delta,
                                std::optional<std::string_view> finish) {
  return SendChunk(
      ChatChunkChoiceJson(choice.index, std::move(delta), finish, TakeLogprobs(choice)),
      finish ? &choice.timings : nullptr);
}

bool ReplyStream::Finish(const Usage& usage) {
  if (request_.include_usage) {
    Json chunk = AnswerEnvelope(head_, true);
    chunk["usage"] = UsageJson(usage);
    chunk["timings"] = TimingsJson(usage.total, head_.id);
    if (!sink_.Write(SseEvent(chunk))) {
      return false;
    }
  }
  return sink_.Write(kSseDone);
}

bool ReplyStream::Fail(const ApiError& error) {
  return sink_.Write("data: " + ErrorBody(error) + "\n\n") && sink_.Write(kSseDone);
}

}  // namespace skippy
