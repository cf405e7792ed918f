// The sockets of the management API: the only user of the HTTP library in this folder.
#include <httplib.h>
#include <spdlog/fmt/fmt.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"
#include "control/management.h"

namespace skippy {
namespace {

constexpr std::size_t kLargestBodyBytes = 64 * 1024;
constexpr std::size_t kThreads = 4;
constexpr std::size_t kWaitingRequests = 64;
constexpr std::chrono::seconds kSocketTimeout{10};

ManagementRequest ToRequest(const httplib::Request& request) {
  ManagementRequest out;
  out.method = request.method;
  out.target = request.target;
  out.remote_address = request.remote_addr;
  out.host = request.get_header_value("Host");
  out.origin = request.get_header_value("Origin");
  out.body = request.body;
  return out;
}

class HttplibManagementServer final : public ManagementServer {
 public:
  explicit HttplibManagementServer(const ManagementApi* api) : api_(api) {
    const httplib::Server::Handler handler = [this](const httplib::Request& request,
                                                    httplib::Response& response) {
      Answer(request, response);
    };
    // Every path goes to the API, which also knows the refusals.
    server_.Get(".*", handler).Post(".*", handler).Put(".*", handler);
    server_.Patch(".*", handler).Delete(".*", handler).Options(".*", handler);
    server_.set_payload_max_length(kLargestBodyBytes);
    server_.set_read_timeout(kSocketTimeout);
    server_.set_write_timeout(kSocketTimeout);
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads, 0, kWaitingRequests); };
    // The library's default shares the port with other processes that ask for it.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
  }
  ~HttplibManagementServer() override { Stop(); }

  Status Listen(const ManagementListenOptions& options) {
    const int wanted = options.port.value_or(0);
    errno = 0;
    port_ = wanted == 0 ? server_.bind_to_any_port(options.host)
                        : (server_.bind_to_port(options.host, wanted) ? wanted : -1);
    if (port_ <= 0) {
      const int os_errno = errno;
      return MakeError(
          os_errno == EADDRINUSE ? ErrorCode::kBusy : ErrorCode::kIo,
          fmt::format("--management-port: cannot listen on {}:{}: {}", options.host, wanted,
                      os_errno == 0 ? "the address cannot be used" : std::strerror(os_errno)),
          os_errno);
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    server_.wait_until_ready();
    return {};
  }

  int port() const override { return port_; }

  void Stop() override {
    if (thread_.joinable()) {
      server_.stop();
      thread_.join();
    }
  }

 private:
  void Answer(const httplib::Request& request, httplib::Response& response) {
    ManagementReply reply = api_->Handle(ToRequest(request));
    if (request.method != "GET") {
      LogInfo("management: {} {}: {}", request.method, request.path, reply.status);
    }
    response.status = reply.status;
    if (!reply.allow.empty()) {
      response.set_header("Allow", reply.allow);
    }
    response.set_content(std::move(reply.body), reply.content_type);
  }

  const ManagementApi* const api_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<ManagementServer>> ManagementServer::Start(
    const ManagementListenOptions& options, const ManagementApi* api) {
  auto server = std::make_unique<HttplibManagementServer>(api);
  SKIPPY_RETURN_IF_ERROR(server->Listen(options));
  return std::unique_ptr<ManagementServer>(std::move(server));
}

}  // namespace skippy
