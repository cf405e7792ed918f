#include <chrono>
#include <memory>
#include <random>

#include "base/log.h"
#include "serve/endpoints.h"
#include "serve/openai_request.h"
#include "serve/openai_response.h"
#include "serve/reply_run.h"
#include "serve/reply_stream.h"

namespace skippy {
namespace {

using Clock = std::chrono::steady_clock;

// Everything one request needs from its arrival to its last byte.
struct Exchange {
  Engine* engine = nullptr;
  OpenAiRequest request;
  ReplyHead head;
  std::unique_ptr<ReplyRun> run;
  Clock::time_point arrival = Clock::now();
};

std::int64_t SecondsSinceEpoch() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One line per request; never what was asked or answered.
void LogOutcome(const Exchange& exchange, std::string_view outcome) {
  const RequestTimings total = exchange.run->usage().total;
  const double ms =
      std::chrono::duration<double, std::milli>(Clock::now() - exchange.arrival).count();
  LogInfo("{} {}: prompt={} l1={} l2={} l3={} computed={} generated={} ms={:.1f}", exchange.head.id,
          outcome, total.prompt_tokens, total.cached_l1_tokens, total.cached_l2_tokens,
          total.cached_l3_tokens, total.computed_tokens, total.generated_tokens, ms);
}

std::string_view OutcomeName(ReplyRun::End end) {
  switch (end) {
    case ReplyRun::End::kDone:
      return "done";
    case ReplyRun::End::kClientGone:
      return "client gone";
    case ReplyRun::End::kFailed:
      return "failed";
  }
  return "";
}

Json ChoiceJson(const Exchange& exchange, const Choice& choice) {
  const OpenAiRequest& request = exchange.request;
  const std::string& echo = request.prompts[choice.prompt_index].echo_text;
  Json logprobs =
      LogprobsJson(request.endpoint, choice.tokens, request.base.top_logprobs >= 0, echo.size());
  if (request.endpoint == Endpoint::kCompletions) {
    return CompletionChoiceJson(choice.index, echo + choice.text, FinishName(choice.finish, false),
                                std::move(logprobs));
  }
  const ReplyMessage message =
      ReadReply(exchange.engine->chat(), request.base.reply_format.get(), choice, exchange.head.id);
  return ChatChoiceJson(choice.index, message, choice.finish, std::move(logprobs));
}

HttpResponse AnswerPlain(Exchange& exchange, const HttpRequest& http) {
  const ReplyRun::End end =
      exchange.run->Run(http.client_gone, [](const Choice&, const GenerateEvent&) { return true; });
  LogOutcome(exchange, OutcomeName(end));
  if (end == ReplyRun::End::kFailed) {
    return ErrorResponse(exchange.run->error());
  }
  if (end == ReplyRun::End::kClientGone) {
    return ErrorResponse(FromError(MakeError(ErrorCode::kCancelled, "the request was cancelled")));
  }
  const Usage usage = exchange.run->usage();
  Json answer = AnswerEnvelope(exchange.head, false);
  for (const Choice& choice : exchange.run->choices()) {
    answer["choices"].push_back(ChoiceJson(exchange, choice));
  }
  answer["usage"] = UsageJson(usage);
  answer["timings"] = TimingsJson(usage.total);
  HttpResponse response;
  response.headers.emplace_back("X-Skippy-Cache", CacheHeader(usage.total));
  response.body = DumpJson(answer);
  return response;
}

void WriteStream(Exchange& exchange, StreamSink& sink) {
  ReplyStream stream(exchange.request, exchange.head, exchange.engine->chat(), sink);
  ReplyRun::End end = ReplyRun::End::kClientGone;
  bool sent = stream.Begin();
  if (sent) {
    end = exchange.run->Run([&sink] { return sink.ClientGone(); },
                            [&stream](const Choice& choice, const GenerateEvent& event) {
                              return stream.OnEvent(choice, event);
                            });
    if (end == ReplyRun::End::kDone) {
      sent = stream.Finish(exchange.run->usage());
    } else {
      // A client that still listens is told: the server is stopping.
      sent = stream.Fail(
          end == ReplyRun::End::kFailed
              ? exchange.run->error()
              : FromError(MakeError(ErrorCode::kCancelled, "the request was cancelled")));
    }
  }
  LogOutcome(exchange, sent ? OutcomeName(end) : OutcomeName(ReplyRun::End::kClientGone));
  exchange.run.reset();
}

ApiResult<OpenAiRequest> ParseBody(Engine& engine, Endpoint endpoint, const std::string& body) {
  const ApiResult<Json> json = ParseJsonObject(body);
  if (!json) {
    return json.error();
  }
  return endpoint == Endpoint::kChat ? ParseChatRequest(*json, engine)
                                     : ParseCompletionRequest(*json, engine);
}

HttpResponse Answer(Exchange& exchange, const std::shared_ptr<Exchange>& shared,
                    const HttpRequest& http) {
  if (!exchange.request.stream) {
    return AnswerPlain(exchange, http);
  }
  HttpResponse response;
  response.content_type = std::string(kEventStreamContentType);
  response.stream = [shared](StreamSink& sink) { WriteStream(*shared, sink); };
  return response;
}

}  // namespace

std::string NewRequestId(std::string_view prefix) {
  constexpr int kDigits = 24;
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::random_device source;
  std::string id(prefix);
  for (int i = 0; i < kDigits; ++i) {
    id.push_back(kHex[source() & 15U]);
  }
  return id;
}

HttpResponse AnswerGeneration(Engine& engine, Endpoint endpoint, const HttpRequest& request) {
  auto exchange = std::make_shared<Exchange>();
  exchange->engine = &engine;
  exchange->head.endpoint = endpoint;
  exchange->head.id = NewRequestId(endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-");
  exchange->head.created_s = SecondsSinceEpoch();
  const auto respond = [&]() -> HttpResponse {
    ApiResult<OpenAiRequest> parsed = ParseBody(engine, endpoint, request.body);
    if (!parsed) {
      LogInfo("{} refused: {}", exchange->head.id, parsed.error().code);
      return ErrorResponse(parsed.error());
    }
    exchange->request = std::move(*parsed);
    exchange->head.model =
        exchange->request.model.empty() ? engine.Info().name : exchange->request.model;
    auto run = ReplyRun::Submit(engine, exchange->request, exchange->head.id);
    if (!run) {
      LogInfo("{} refused: {}", exchange->head.id, run.error().code);
      return ErrorResponse(run.error());
    }
    exchange->run = std::move(*run);
    return Answer(*exchange, exchange, request);
  };
  HttpResponse response = respond();
  response.headers.emplace_back("X-Request-Id", exchange->head.id);
  return response;
}

}  // namespace skippy
