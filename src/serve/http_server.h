// A listening HTTP(S) server over a Router: sockets, threads, limits, keys. Knows nothing of
// models.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "serve/router.h"
#include "skippy/result.h"

namespace skippy {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;           // 0: any free port, see port()
  int clients_max = 256;  // concurrent requests on routes that are not open; more get 429
  std::size_t body_bytes_max = 64U << 20;
  int read_timeout_ms = 30'000;            // silence in the middle of a request
  int receive_timeout_ms = 120'000;        // a whole request, however it trickles in
  int receive_timeout_crowded_ms = 5'000;  // the same while others wait for a thread
  int write_timeout_ms = 60'000;           // a client that does not take what is sent
  std::vector<std::string> api_keys;       // none: no key is asked for
  std::string ssl_cert_file;               // both or none
  std::string ssl_key_file;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;

  // Listens when it returns. kBusy: the port is taken; kInvalidArgument: the address or the
  // certificate cannot be used.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, Router router);

  virtual int port() const = 0;
  // Refuses new connections, tells running handlers that their client is gone, waits for them.
  // Idempotent.
  virtual void Stop() = 0;
};

}  // namespace skippy
