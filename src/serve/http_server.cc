// The one place that knows the HTTP library. It gives every connection a thread for its whole life,
// so the pool has a thread for each admitted client and some to refuse the rest.
#include "serve/http_server.h"

#include <cpp-httplib/httplib.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "base/log.h"
#include "serve/api_error.h"
#include "serve/connection_threads.h"

namespace skippy {
namespace {

constexpr int kSpareThreads = 16;          // for open routes and refusals
constexpr std::size_t kWaitingMax = 1024;  // accepted connections without a thread yet
constexpr std::size_t kKeepAliveRequests = 10'000;
constexpr int kKeepAliveSeconds = 5;

// Takes the same time for every wrong key of one length.
bool EqualInConstantTime(std::string_view secret, std::string_view offered) {
  unsigned difference = secret.size() == offered.size() ? 0U : 1U;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned char>(expected ^ offered[i]);
  }
  return difference == 0;
}

std::string OfferedKey(const httplib::Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string value = request.get_header_value("Authorization");
  if (value.size() >= kBearer.size() && std::string_view(value).starts_with(kBearer)) {
    return value.substr(kBearer.size());
  }
  return request.get_header_value("X-Api-Key");
}

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

HttpRequest ToHttpRequest(const httplib::Request& from) {
  HttpRequest request;
  request.method = from.method;
  request.path = from.path;
  for (const auto& [name, value] : from.headers) {
    request.headers[LowerCase(name)] = value;
  }
  for (const auto& [name, value] : from.params) {
    request.query[name] = value;
  }
  for (const auto& [name, value] : from.path_params) {
    request.path_params[name] = value;
  }
  return request;
}

class DataSinkAdapter final : public StreamSink {
 public:
  DataSinkAdapter(httplib::DataSink& sink, std::function<bool()> client_gone)
      : sink_(sink), client_gone_(std::move(client_gone)) {}
  bool Write(std::string_view bytes) override { return sink_.write(bytes.data(), bytes.size()); }
  bool ClientGone() override { return client_gone_(); }
  void AddTrailer(std::string name, std::string value) override {
    trailers_.emplace(std::move(name), std::move(value));
  }
  void End() { trailers_.empty() ? sink_.done() : sink_.done_with_trailer(trailers_); }

 private:
  httplib::Headers trailers_;
  httplib::DataSink& sink_;
  const std::function<bool()> client_gone_;
};

// The library's own pool counts a thread as idle until it has woken up, so that of a burst of
// connections some would wait behind others' streams, and it has no limit on the time of a request.
class TaskQueueAdapter final : public httplib::TaskQueue {
 public:
  explicit TaskQueueAdapter(const ConnectionThreads::Limits& limits) : threads_(limits) {}
  bool enqueue(std::function<void()> connection) override {
    return threads_.Enqueue(std::move(connection), TakeAcceptedSocket());
  }
  void shutdown() override { threads_.Shutdown(); }

 private:
  ConnectionThreads threads_;
};

// One of the admitted requests; gives its place back when the last byte is out.
class Admission {
 public:
  explicit Admission(std::atomic<int>& active) : active_(active) { ++active_; }
  ~Admission() { --active_; }
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

 private:
  std::atomic<int>& active_;
};

// Owns the listening thread. Handlers run on the library's pool; they reach this object, which
// outlives them, because Stop joins the pool.
class HttplibServer final : public HttpServer {
 public:
  HttplibServer(HttpServerOptions options, Router router)
      : options_(std::move(options)), router_(std::move(router)) {}
  ~HttplibServer() override { Stop(); }

  Status Listen();
  int port() const override { return port_; }
  void Stop() override;

 private:
  Status Create();
  void Configure();
  void Register(const Route& route);
  bool HasKey(const httplib::Request& request) const;
  std::optional<ApiError> Refuse(const Route& route, const httplib::Request& request) const;
  void Handle(const Route& route, const httplib::Request& from, httplib::Response& to,
              const httplib::ContentReader* reader);
  bool ReadBody(const httplib::ContentReader& reader, std::string& body) const;
  void Send(HttpResponse&& response, const HttpRequest& request,
            const std::shared_ptr<Admission>& admission, httplib::Response& to) const;
  void DescribeError(const httplib::Request& request, httplib::Response& response) const;

  const HttpServerOptions options_;
  const Router router_;
  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> active_{0};
};

Status HttplibServer::Create() {
  if (options_.ssl_cert_file.empty() != options_.ssl_key_file.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "a TLS certificate and a TLS key must be given together");
  }
  if (options_.ssl_cert_file.empty()) {
    server_ = std::make_unique<httplib::Server>();
  } else {
    server_ = std::make_unique<httplib::SSLServer>(options_.ssl_cert_file.c_str(),
                                                   options_.ssl_key_file.c_str());
  }
  if (!server_->is_valid()) {
    return MakeError(ErrorCode::kInvalidArgument, "cannot use the TLS certificate " +
                                                      options_.ssl_cert_file + " with the key " +
                                                      options_.ssl_key_file);
  }
  return {};
}

void HttplibServer::Configure() {
  const ConnectionThreads::Limits limits{
      .threads_max = static_cast<std::size_t>(options_.clients_max + kSpareThreads),
      .waiting_max = kWaitingMax,
      .receive_time = std::chrono::milliseconds(options_.receive_timeout_ms),
      .receive_time_crowded = std::chrono::milliseconds(options_.receive_timeout_crowded_ms)};
  server_->new_task_queue = [limits] { return new TaskQueueAdapter(limits); };
  // Called when an answer is made; streams are written after it.
  server_->set_logger(
      [](const httplib::Request&, const httplib::Response&) { ConnectionThreads::EndAnswer(); });
  server_->set_payload_max_length(options_.body_bytes_max);
  server_->set_read_timeout(std::chrono::milliseconds(options_.read_timeout_ms));
  server_->set_write_timeout(std::chrono::milliseconds(options_.write_timeout_ms));
  server_->set_keep_alive_max_count(kKeepAliveRequests);
  server_->set_keep_alive_timeout(kKeepAliveSeconds);
  server_->set_tcp_nodelay(true);
  server_->set_default_headers({{"Server", "skippy"}});
  // Not SO_REUSEPORT, the library's default: it would share the port with another process.
  server_->set_socket_options(
      [](socket_t socket) { httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1); });
  server_->set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    DescribeError(request, response);
  });
  server_->set_exception_handler(
      [](const httplib::Request& request, httplib::Response& response, std::exception_ptr) {
        LogError("{} {}: a handler threw", request.method, request.path);
        response.status = 500;
      });
}

void HttplibServer::Register(const Route& route) {
  const auto plain = [this, &route](const httplib::Request& from, httplib::Response& to) {
    Handle(route, from, to, nullptr);
  };
  const auto reading = [this, &route](const httplib::Request& from, httplib::Response& to,
                                      const httplib::ContentReader& reader) {
    Handle(route, from, to, &reader);
  };
  if (route.method == "GET") {
    server_->Get(route.path, plain);
  } else if (route.method == "POST") {
    server_->Post(route.path, reading);
  } else if (route.method == "PUT") {
    server_->Put(route.path, reading);
  } else if (route.method == "DELETE") {
    server_->Delete(route.path, reading);
  }
}

Status HttplibServer::Listen() {
  SKIPPY_RETURN_IF_ERROR(Create());
  Configure();
  for (const Route& route : router_.routes()) {
    Register(route);
  }
  errno = 0;
  if (options_.port == 0) {
    port_ = server_->bind_to_any_port(options_.host);
  } else {
    port_ = server_->bind_to_port(options_.host, options_.port) ? options_.port : -1;
  }
  if (port_ <= 0) {
    const int cause = errno;
    const std::string place = options_.host + ":" + std::to_string(options_.port);
    if (cause == EADDRINUSE) {
      return MakeError(ErrorCode::kBusy,
                       "cannot listen on " + place + ": the port is in use by another process",
                       cause);
    }
    return MakeError(ErrorCode::kInvalidArgument,
                     "cannot listen on " + place + ": " +
                         (cause == 0 ? "the address is not one of this machine"
                                     : std::string(std::strerror(cause))),
                     cause);
  }
  thread_ = std::thread([this] {
    if (!server_->listen_after_bind() && !stopping_) {
      LogError("the HTTP server stopped accepting connections");
    }
  });
  server_->wait_until_ready();
  return {};
}

void HttplibServer::Stop() {
  stopping_ = true;
  if (server_ != nullptr) {
    server_->stop();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool HttplibServer::HasKey(const httplib::Request& request) const {
  const std::string offered = OfferedKey(request);
  bool found = options_.api_keys.empty();
  for (const std::string& key : options_.api_keys) {
    found |= EqualInConstantTime(key, offered);
  }
  return found;
}

std::optional<ApiError> HttplibServer::Refuse(const Route& route,
                                              const httplib::Request& request) const {
  if (route.open) {
    return std::nullopt;
  }
  if (!HasKey(request)) {
    return ApiError{401, "the API key is missing or wrong", "authentication_error", "",
                    "invalid_api_key"};
  }
  if (active_ > options_.clients_max) {
    return ApiError{429,
                    "the server's limit of " + std::to_string(options_.clients_max) +
                        " concurrent requests is reached",
                    "rate_limit_error", "", "rate_limit_exceeded"};
  }
  if (request.get_header_value_u64("Content-Length") > options_.body_bytes_max) {
    return ApiError{413,
                    "the request body is larger than the server's limit of " +
                        std::to_string(options_.body_bytes_max) + " bytes",
                    "invalid_request_error", "", "body_too_large"};
  }
  return std::nullopt;
}

bool HttplibServer::ReadBody(const httplib::ContentReader& reader, std::string& body) const {
  return reader([&](const char* data, std::size_t byte_count) {
    body.append(data, byte_count);
    return body.size() <= options_.body_bytes_max;
  });
}

void HttplibServer::Handle(const Route& route, const httplib::Request& from, httplib::Response& to,
                           const httplib::ContentReader* reader) {
  const auto admission = route.open ? nullptr : std::make_shared<Admission>(active_);
  HttpRequest request = ToHttpRequest(from);
  if (const std::optional<ApiError> refusal = Refuse(route, from)) {
    Send(route.refuse(*refusal), request, admission, to);
    to.set_header("Connection", "close");  // the body was not read
    return;
  }
  if (reader != nullptr && !ReadBody(*reader, request.body)) {
    to.status = request.body.size() > options_.body_bytes_max ? 413
                : ConnectionThreads::IsCutOff()               ? 408
                                                              : 400;
    return;
  }
  ConnectionThreads::BeginAnswer();
  if (!options_.api_keys.empty()) {
    request.api_key = OfferedKey(from);
  }
  // The library's own check reads one byte ahead on the socket, which the library keeps open as
  // long as handler and stream run.
  request.client_gone = [this, closed = from.is_connection_closed] {
    return stopping_ || closed();
  };
  Send(route.handler(request), request, admission, to);
}

void HttplibServer::Send(HttpResponse&& response, const HttpRequest& request,
                         const std::shared_ptr<Admission>& admission, httplib::Response& to) const {
  to.status = response.status;
  for (const auto& [name, value] : response.headers) {
    to.set_header(name, value);
  }
  if (!response.stream) {
    to.set_content(std::move(response.body), response.content_type);
    return;
  }
  to.set_header("Cache-Control", "no-cache");
  for (const std::string& name : response.trailers) {
    to.set_header("Trailer", name);
  }
  to.set_chunked_content_provider(
      response.content_type,
      [stream = std::move(response.stream), client_gone = request.client_gone, admission](
          std::size_t, httplib::DataSink& sink) {
        DataSinkAdapter adapter(sink, client_gone);
        ConnectionThreads::BeginAnswer();
        stream(adapter);
        adapter.End();
        ConnectionThreads::EndAnswer();
        return true;
      });
}

void HttplibServer::DescribeError(const httplib::Request& request,
                                  httplib::Response& response) const {
  if (!response.body.empty()) {
    return;
  }
  ApiError error{response.status, "the request is not valid HTTP", "invalid_request_error", "", ""};
  if (response.status == 404) {
    const std::string allowed = router_.AllowedMethods(request.path);
    error = allowed.empty()
                ? ApiError{404, "no such endpoint: " + request.method + " " + request.path,
                           "invalid_request_error", "", "not_found"}
                : ApiError{405, request.path + " answers " + allowed + ", not " + request.method,
                           "invalid_request_error", "", "method_not_allowed"};
    if (!allowed.empty()) {
      response.status = 405;
      response.set_header("Allow", allowed);
    }
  } else if (response.status == 408) {
    error.message = "the request did not arrive in time";
  } else if (response.status == 413) {
    error.message = "the request body is larger than the server's limit of " +
                    std::to_string(options_.body_bytes_max) + " bytes";
  } else if (response.status >= 500) {
    error.message = "internal error";
    error.type = "server_error";
  }
  const Route* route = router_.Find(request.path);
  HttpResponse described = route == nullptr ? ErrorResponse(error) : route->refuse(error);
  response.set_content(std::move(described.body), std::string(kJsonContentType));
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      Router router) {
  auto server = std::make_unique<HttplibServer>(options, std::move(router));
  SKIPPY_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace skippy
