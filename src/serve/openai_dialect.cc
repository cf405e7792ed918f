#include "serve/dialect.h"
#include "serve/reply_stream.h"

namespace skippy {
namespace {

Json ChoiceJson(const ReplyContext& context, const Choice& choice) {
  const OpenAiRequest& request = context.request;
  const std::string& echo = request.prompts[choice.prompt_index].echo_text;
  Json logprobs =
      LogprobsJson(request.endpoint, choice.tokens, request.base.top_logprobs >= 0, echo.size());
  if (request.endpoint == Endpoint::kCompletions) {
    return CompletionChoiceJson(choice.index, echo + choice.text, FinishName(choice.finish, false),
                                std::move(logprobs));
  }
  const ReplyMessage message =
      ReadReply(context.chat, request.base.reply_format.get(), choice, context.head.id);
  return ChatChoiceJson(choice.index, message, choice.finish, std::move(logprobs));
}

Json OpenAiAnswer(const ReplyContext& context, const ReplyRun& run) {
  Json answer = AnswerEnvelope(context.head, false);
  for (const Choice& choice : run.choices()) {
    answer["choices"].push_back(ChoiceJson(context, choice));
  }
  answer["usage"] = UsageJson(run.usage());
  return answer;
}

std::unique_ptr<ReplyEvents> OpenEvents(const ReplyContext& context, StreamSink& sink) {
  return std::make_unique<ReplyStream>(context, sink);
}

}  // namespace

const Dialect& ChatDialect() {
  static const Dialect dialect{Endpoint::kChat, "chatcmpl-", ParseChatRequest,
                               OpenAiAnswer,    OpenEvents,  ErrorResponse};
  return dialect;
}

const Dialect& CompletionsDialect() {
  static const Dialect dialect{Endpoint::kCompletions, "cmpl-",    ParseCompletionRequest,
                               OpenAiAnswer,           OpenEvents, ErrorResponse};
  return dialect;
}

}  // namespace skippy
