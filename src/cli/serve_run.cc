#include "cli/serve_run.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "cli/command_line.h"
#include "control/byte_size.h"
#include "control/management.h"
#include "serve/server.h"
#include "skippy/cache.h"
#include "skippy/env.h"

namespace skippy {
namespace {

constexpr std::chrono::seconds kProgressInterval{2};

// Members end in reverse order: the listeners before the engine they call, the engine before the
// cache it uses.
class ServeLife {
 public:
  ServeLife(const ServeConfiguration& configuration, StopSignal* stop)
      : configuration_(configuration), stop_(*stop) {}

  Status Start() {
    SKIPPY_ASSIGN_OR_RETURN(cache_, Cache::Open(configuration_.cache(), Env::Posix()));
    LogTiers();
    SKIPPY_RETURN_IF_ERROR(Listen());
    return LoadModel();
  }

  Status Finish() {
    if (server_) {
      server_->Stop();
    }
    if (engine_) {
      engine_->Stop();
    }
    if (management_) {
      management_->Stop();
    }
    return cache_ ? cache_->Close() : Status();
  }

 private:
  // A tier that could not be opened was logged by the cache.
  void LogTiers() {
    const CacheStatus status = cache_->GetStatus();
    if (status.ram.budget_bytes > 0) {
      LogInfo("RAM tier active, budget {}", FormatByteSize(status.ram.budget_bytes));
    }
    if (status.disk_state != TierState::kOff && status.disk_state != TierState::kDegraded) {
      LogInfo("disk tier {} in {}, budget {}", ToString(status.disk_state), status.directory,
              FormatByteSize(status.disk.budget_bytes));
    }
  }

  Status Listen() {
    ServerOptions options;
    options.http.host = configuration_.listen.host;
    options.http.port = configuration_.listen.port;
    options.http.api_keys = configuration_.listen.api_keys;
    options.http.ssl_cert_file = configuration_.listen.ssl_cert_file;
    options.http.ssl_key_file = configuration_.listen.ssl_key_file;
    options.explain_text = configuration_.listen.explain_text;
    options.isolate_by_key = configuration_.listen.isolate_by_key;
    auto server = Server::Start(options);
    if (!server) {
      return server.error().WithContext("--host, --port, --ssl-cert-file");
    }
    server_ = std::move(*server);
    LogInfo("listening on {}://{}:{}", options.http.ssl_cert_file.empty() ? "http" : "https",
            configuration_.listen.host, server_->port());
    if (!configuration_.management.port) {
      return {};
    }
    api_ = std::make_unique<ManagementApi>(cache_.get(), configuration_.disk);
    SKIPPY_ASSIGN_OR_RETURN(management_,
                            ManagementServer::Start(configuration_.management, api_.get()));
    LogInfo("management API on http://{}:{}", configuration_.management.host, management_->port());
    return {};
  }

  Status LoadModel() {
    EngineOptions options = configuration_.engine;
    options.load_progress = [this](float fraction) { OnProgress(fraction); };
    SKIPPY_ASSIGN_OR_RETURN(engine_, OpenLlamaEngine(options, cache_.get(), Env::Posix()));
    const ModelInfo info = engine_->Info();
    if (!info.cache_reason.empty()) {
      LogWarning("this model is served without the cache: {}", info.cache_reason);
    }
    if (api_) {
      api_->SetEngine(engine_.get());
    }
    server_->SetEngine(engine_.get());
    LogInfo("ready");
    return {};
  }

  // On this thread, inside OpenLlamaEngine, which cannot be interrupted: a stop that arrives while
  // the weights are read ends the process from here, after everything that is open was closed.
  void OnProgress(float fraction) {
    server_->SetLoadProgress(fraction);
    const auto now = Env::Posix()->MonotonicNow();
    if (now - progress_logged_ >= kProgressInterval) {
      progress_logged_ = now;
      LogInfo("loading the model: {} %", static_cast<int>(fraction * 100));
    }
    if (stop_.IsRequested()) {
      const Status closed = Finish();
      if (!closed) {
        LogError("{}", closed.error().text);
      }
      spdlog::default_logger()->flush();
      std::_Exit(closed ? 0 : kExitFailed);
    }
  }

  const ServeConfiguration& configuration_;
  StopSignal& stop_;
  std::chrono::nanoseconds progress_logged_{0};  // monotonic; 0: nothing yet
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ManagementApi> api_;
  std::unique_ptr<ManagementServer> management_;
  std::unique_ptr<Server> server_;
};

}  // namespace

int RunServe(const ServeConfiguration& configuration, StopSignal* stop) {
  // A client that hangs up is an error of one write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  ServeLife life(configuration, stop);
  const Status started = life.Start();
  if (started) {
    stop->Wait();
    LogInfo("stopping");
  } else {
    // Not through the log, whose level may hide it.
    std::fprintf(stderr, "skippy: %s\n", started.error().text.c_str());
  }
  const Status finished = life.Finish();
  if (!finished) {
    LogError("{}", finished.error().text);
  }
  return started && finished ? 0 : kExitFailed;
}

}  // namespace skippy
