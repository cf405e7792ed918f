#include "serve/server.h"

#include <atomic>
#include <utility>

#include "base/log.h"
#include "serve/anthropic.h"
#include "serve/endpoints.h"
#include "serve/json.h"

namespace skippy {
namespace {

using EngineHandler = HttpResponse (*)(const Serving& serving, const HttpRequest& request);

template <const Dialect& (*dialect)()>
HttpResponse AnswerIn(const Serving& serving, const HttpRequest& request) {
  return AnswerGeneration(serving, dialect(), request);
}

template <HttpResponse (*answer)(Engine& engine, const HttpRequest& request)>
HttpResponse OnEngine(const Serving& serving, const HttpRequest& request) {
  return answer(serving.engine, request);
}

struct EngineRoute {
  const char* method;
  const char* path;
  EngineHandler handler;
  HttpResponse (*refuse)(const ApiError& error) = ErrorResponse;
};

constexpr EngineRoute kEngineRoutes[] = {
    {"POST", "/v1/chat/completions", AnswerIn<ChatDialect>},
    {"POST", "/chat/completions", AnswerIn<ChatDialect>},
    {"POST", "/v1/completions", AnswerIn<CompletionsDialect>},
    {"POST", "/completions", AnswerIn<CompletionsDialect>},
    {"POST", "/v1/responses", AnswerIn<ResponsesDialect>},
    {"POST", "/v1/messages", AnswerIn<MessagesDialect>, MessagesErrorResponse},
    {"POST", "/v1/messages/count_tokens", OnEngine<AnswerCountTokens>, MessagesErrorResponse},
    {"POST", "/v1/embeddings", OnEngine<AnswerEmbeddings>},
    {"POST", "/embeddings", OnEngine<AnswerEmbeddings>},
    {"GET", "/v1/models", OnEngine<AnswerModels>},
    {"GET", "/models", OnEngine<AnswerModels>},
    {"GET", "/v1/models/:model", OnEngine<AnswerModels>},
    {"GET", "/v1/cache/explain/:request", AnswerExplain},
    {"POST", "/tokenize", OnEngine<AnswerTokenize>},
    {"POST", "/detokenize", OnEngine<AnswerDetokenize>},
    {"POST", "/apply-template", OnEngine<AnswerApplyTemplate>},
};

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

class OpenAiServer final : public Server {
 public:
  ~OpenAiServer() override { Stop(); }

  Status Listen(const ServerOptions& options);
  void SetEngine(Engine* engine) override { engine_.store(engine); }
  void SetLoadProgress(float fraction) override { load_progress_.store(fraction); }
  int port() const override { return http_->port(); }
  void Stop() override;

 private:
  Router MakeRoutes();
  HttpResponse Dispatch(const EngineRoute& route, const HttpRequest& request) const;
  HttpResponse AnswerHealth() const;

  std::atomic<Engine*> engine_{nullptr};
  std::atomic<float> load_progress_{0.0F};
  std::unique_ptr<ExplainLog> explain_;  // constant once listening
  bool isolate_by_key_ = false;          // constant once listening
  std::unique_ptr<HttpServer> http_;
};

HttpResponse OpenAiServer::Dispatch(const EngineRoute& route, const HttpRequest& request) const {
  Engine* engine = engine_.load();
  if (engine == nullptr) {
    return route.refuse(
        ApiError{503, "the model is still loading", "unavailable_error", "", "loading_model"});
  }
  return route.handler({*engine, *explain_, isolate_by_key_}, request);
}

HttpResponse OpenAiServer::AnswerHealth() const {
  HttpResponse response;
  if (engine_.load() != nullptr) {
    response.body = R"({"status":"ok"})";
    return response;
  }
  response.status = 503;
  response.headers.emplace_back("Retry-After", "1");
  // `error` is there for clients that know llama-server's form.
  response.body = DumpJson(Json{
      {"status", "loading model"},
      {"progress", load_progress_.load()},
      {"error",
       {{"message", "the model is still loading"}, {"type", "unavailable_error"}, {"code", 503}}}});
  return response;
}

Router OpenAiServer::MakeRoutes() {
  Router router;
  for (const EngineRoute& route : kEngineRoutes) {
    router.Add({route.method, route.path,
                [this, &route](const HttpRequest& request) { return Dispatch(route, request); },
                false, route.refuse});
  }
  for (const char* path : {"/health", "/v1/health"}) {
    router.Add({"GET", path, [this](const HttpRequest&) { return AnswerHealth(); }, true});
  }
  router.Add({"GET", "/",
              [](const HttpRequest&) {
                HttpResponse response;
                response.content_type = "text/plain; charset=utf-8";
                response.body = "Skippy: an OpenAI-compatible server. The API is under /v1.\n";
                return response;
              },
              true});
  return router;
}

Status OpenAiServer::Listen(const ServerOptions& options) {
  explain_ = std::make_unique<ExplainLog>(options.explain_text);
  isolate_by_key_ = options.isolate_by_key;
  SKIPPY_ASSIGN_OR_RETURN(http_, HttpServer::Start(options.http, MakeRoutes()));
  if (!IsLoopback(options.http.host) && options.http.api_keys.empty()) {
    LogWarning("listening on {} without an API key: whoever reaches this machine can use the model",
               options.http.host);
  }
  return {};
}

void OpenAiServer::Stop() {
  if (http_ != nullptr) {
    http_->Stop();
  }
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  auto server = std::make_unique<OpenAiServer>();
  SKIPPY_RETURN_IF_ERROR(server->Listen(options));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace skippy
