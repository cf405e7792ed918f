#include <chrono>
#include <memory>
#include <random>

#include "base/hash.h"
#include "base/log.h"
#include "serve/endpoints.h"

namespace skippy {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kCacheHeader = "X-Skippy-Cache";
using NameSpaceDigest = OpaqueBytes<struct NameSpaceDigestTag, 32>;

// Everything one request needs from its arrival to its last byte.
struct Exchange {
  Engine* engine = nullptr;
  ExplainLog* explain = nullptr;
  const Dialect* dialect = nullptr;
  OpenAiRequest request;
  ReplyHead head;
  std::unique_ptr<ReplyRun> run;
  PromptComparison comparison;  // of the first prompt
  Clock::time_point arrival = Clock::now();
};

std::int64_t SecondsSinceEpoch() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One line in the log, never what was asked or answered.
void NoteOutcome(const Exchange& exchange, std::string_view outcome) {
  const RequestTimings total = exchange.run->usage().total;
  exchange.explain->Remember({exchange.comparison, total, exchange.request.prompts.size(),
                              exchange.request.base.cache_read},
                             exchange.engine->chat());
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

ReplyContext ContextOf(const Exchange& exchange) {
  return {exchange.request, exchange.head, exchange.engine->chat()};
}

ApiError Cancelled() {
  return FromError(MakeError(ErrorCode::kCancelled, "the request was cancelled"));
}

HttpResponse AnswerPlain(Exchange& exchange, const HttpRequest& http) {
  const ReplyRun::End end =
      exchange.run->Run(http.client_gone, [](const Choice&, const GenerateEvent&) { return true; });
  NoteOutcome(exchange, OutcomeName(end));
  if (end == ReplyRun::End::kFailed) {
    return exchange.dialect->refuse(exchange.run->error());
  }
  if (end == ReplyRun::End::kClientGone) {
    return exchange.dialect->refuse(Cancelled());
  }
  const Usage usage = exchange.run->usage();
  Json answer = exchange.dialect->answer(ContextOf(exchange), *exchange.run);
  answer["timings"] = TimingsJson(usage.total, exchange.head.id);
  HttpResponse response;
  response.headers.emplace_back(kCacheHeader, CacheHeader(usage.total));
  response.body = DumpJson(answer);
  return response;
}

void WriteStream(Exchange& exchange, StreamSink& sink) {
  const ReplyContext context = ContextOf(exchange);
  const std::unique_ptr<ReplyEvents> events = exchange.dialect->open_events(context, sink);
  ReplyRun::End end = ReplyRun::End::kClientGone;
  bool sent = events->Begin();
  if (sent) {
    end = exchange.run->Run([&sink] { return sink.ClientGone(); },
                            [&events](const Choice& choice, const GenerateEvent& event) {
                              return events->OnEvent(choice, event);
                            });
    if (end == ReplyRun::End::kDone) {
      sent = events->Finish(exchange.run->usage());
    } else {
      // A client that still listens is told: the server is stopping.
      sent = events->Fail(end == ReplyRun::End::kFailed ? exchange.run->error() : Cancelled());
    }
  }
  sink.AddTrailer(kCacheHeader, CacheHeader(exchange.run->usage().total));
  NoteOutcome(exchange, sent ? OutcomeName(end) : OutcomeName(ReplyRun::End::kClientGone));
  exchange.run.reset();
}

ApiResult<OpenAiRequest> ParseBody(const Exchange& exchange, const std::string& body) {
  const ApiResult<Json> json = ParseJsonObject(body);
  return json ? exchange.dialect->parse(*json, *exchange.engine) : json.error();
}

// A namespace of its own for each pair of key and salt. A digest: status shows namespaces.
std::string NameSpaceOfKey(const std::string& api_key, const std::string& salt) {
  Hasher hasher("skippy cache isolation by API key");
  hasher.UpdateString(api_key);
  hasher.UpdateString(salt);
  return "key:" + hasher.Finish<NameSpaceDigest>().ToHex();
}

HttpResponse Answer(Exchange& exchange, const std::shared_ptr<Exchange>& shared,
                    const HttpRequest& http) {
  if (!exchange.request.stream) {
    return AnswerPlain(exchange, http);
  }
  HttpResponse response;
  response.content_type = std::string(kEventStreamContentType);
  response.stream = [shared](StreamSink& sink) { WriteStream(*shared, sink); };
  response.trailers = {kCacheHeader};
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

HttpResponse AnswerGeneration(const Serving& serving, const Dialect& dialect,
                              const HttpRequest& request) {
  Engine& engine = serving.engine;
  auto exchange = std::make_shared<Exchange>();
  exchange->engine = &engine;
  exchange->explain = &serving.explain;
  exchange->dialect = &dialect;
  exchange->head.endpoint = dialect.endpoint;
  exchange->head.id = NewRequestId(dialect.id_prefix);
  exchange->head.created_s = SecondsSinceEpoch();
  const auto respond = [&]() -> HttpResponse {
    ApiResult<OpenAiRequest> parsed = ParseBody(*exchange, request.body);
    if (!parsed) {
      LogInfo("{} refused: {}", exchange->head.id, parsed.error().code);
      return dialect.refuse(parsed.error());
    }
    exchange->request = std::move(*parsed);
    if (serving.isolate_by_key) {
      std::string& name_space = exchange->request.base.name_space;
      name_space = NameSpaceOfKey(request.api_key, name_space);
    }
    exchange->head.model =
        exchange->request.model.empty() ? engine.Info().name : exchange->request.model;
    auto run = ReplyRun::Submit(engine, exchange->request, exchange->head.id);
    if (!run) {
      LogInfo("{} refused: {}", exchange->head.id, run.error().code);
      return dialect.refuse(run.error());
    }
    exchange->run = std::move(*run);
    const OpenAiRequest& asked = exchange->request;
    exchange->comparison = serving.explain.Compare(
        {exchange->head.id, asked.base.name_space, asked.prompts.front().tokens});
    return Answer(*exchange, exchange, request);
  };
  HttpResponse response = respond();
  response.headers.emplace_back("X-Request-Id", exchange->head.id);
  return response;
}

}  // namespace skippy
