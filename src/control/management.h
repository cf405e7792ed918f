// The management API: status, prune, clear and metrics, for callers on this machine only. The
// routes are a pure function of the request (ManagementApi); the sockets are apart from them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "control/options.h"
#include "control/status_json.h"
#include "skippy/cache.h"
#include "skippy/result.h"

namespace skippy {

struct ManagementRequest {
  std::string method;
  std::string target;          // path and query
  std::string remote_address;  // numeric
  std::string host;            // headers; empty when absent
  std::string origin;
  std::string body;
};

struct ManagementReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::string allow;  // for 405
};

// Thread-safe. Neither the cache nor the engine is owned; both outlive the last Handle.
class ManagementApi {
 public:
  ManagementApi(Cache* cache, DiskConfiguration configured);

  // Null until the model is loaded.
  void SetEngine(Engine* engine) { engine_.store(engine); }

  // May wait for the disk: not for threads that accept connections.
  ManagementReply Handle(const ManagementRequest& request) const;

 private:
  ManagementReply HandleCache(const ManagementRequest& request) const;
  ManagementReply Prune(const std::string& body) const;
  ManagementReply SetLimits(const std::string& body) const;
  ManagementReply Clear(const std::string& body) const;
  void ForgetResidents(const std::optional<ModelIdentity>& model) const;
  ManagementReply MutationReply(const Result<std::uint64_t>& freed_bytes) const;
  StatusSnapshot Snapshot() const;

  Cache* const cache_;
  const DiskConfiguration configured_;
  std::atomic<Engine*> engine_ = nullptr;
};

class ManagementServer {
 public:
  virtual ~ManagementServer() = default;

  // Listens when it returns. kBusy: the port is taken; the text names --management-port. `api` is
  // not owned and outlives Stop. options.port must be set.
  static Result<std::unique_ptr<ManagementServer>> Start(const ManagementListenOptions& options,
                                                         const ManagementApi* api);

  virtual int port() const = 0;
  // Waits for running requests. Idempotent; the destructor does it too.
  virtual void Stop() = 0;
};

}  // namespace skippy
