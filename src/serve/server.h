// The OpenAI-compatible API over an Engine. Listens before the model is loaded, so that whoever
// waits can ask how far it is.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "serve/http_server.h"
#include "skippy/result.h"

namespace skippy {

struct ServerOptions {
  HttpServerOptions http;
  bool explain_text = true;     // explanations may quote prompts; these are kept in memory only
  bool isolate_by_key = false;  // requests with different API keys share no cached state
};

// Thread-safe.
class Server {
 public:
  virtual ~Server() = default;

  // Listens when it returns; until SetEngine every call of the API gets 503. Errors as
  // HttpServer::Start.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options);

  // From now on requests are served. `engine` is not owned and outlives Stop().
  virtual void SetEngine(Engine* engine) = 0;
  // 0..1, shown by /health while there is no engine.
  virtual void SetLoadProgress(float fraction) = 0;
  virtual int port() const = 0;
  // Cancels what runs and waits for it. Idempotent; the destructor does it too.
  virtual void Stop() = 0;
};

}  // namespace skippy
