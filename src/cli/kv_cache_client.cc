#include "cli/kv_cache_client.h"

#include <httplib.h>
#include <spdlog/fmt/fmt.h>

#include "control/byte_size.h"

namespace skippy {
namespace {

constexpr int kTimeoutSeconds = 45;
constexpr int kConnectTimeoutSeconds = 5;

Error BadEndpoint(std::string_view text) {
  return MakeError(ErrorCode::kInvalidArgument,
                   fmt::format("--endpoint: {} is not valid: expected HOST or HOST:PORT",
                               QuoteForMessage(text)));
}

Result<EndpointAnswer> Send(const Endpoint& endpoint, httplib::Request& request) {
  httplib::Client client(endpoint.host, endpoint.port);
  client.set_connection_timeout(kConnectTimeoutSeconds);
  client.set_read_timeout(kTimeoutSeconds);
  client.set_write_timeout(kTimeoutSeconds);
  const httplib::Result result = client.send(request);
  if (!result) {
    return MakeError(ErrorCode::kUnavailable, fmt::format("no answer from {}: {}", endpoint.text(),
                                                          httplib::to_string(result.error())));
  }
  return EndpointAnswer{result->status, result->body};
}

}  // namespace

std::string Endpoint::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Endpoint> ParseEndpoint(std::string_view text, int default_port) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
  }
  if (rest.ends_with('/')) {
    rest.remove_suffix(1);
  }
  Endpoint out;
  out.port = default_port;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) {
      return BadEndpoint(text);
    }
    out.host = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  } else {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    out.host = rest.substr(0, end);
    rest.remove_prefix(end);
  }
  if (!rest.empty()) {
    const auto port = rest.front() == ':' ? ParseWholeNumber(rest.substr(1)) : std::nullopt;
    if (!port || *port == 0 || *port > 65535) {
      return BadEndpoint(text);
    }
    out.port = static_cast<int>(*port);
  }
  if (out.host.empty() || out.host.find_first_of("/@ ?#") != std::string::npos) {
    return BadEndpoint(text);
  }
  return out;
}

Result<EndpointAnswer> CallEndpoint(const Endpoint& endpoint, const std::string& method,
                                    const std::string& path, const std::string& body) {
  httplib::Request request;
  request.method = method;
  request.path = path;
  if (!body.empty()) {
    request.body = body;
    request.set_header("Content-Type", "application/json");
  }
  return Send(endpoint, request);
}

Result<EndpointAnswer> GetFromApi(const Endpoint& endpoint, const std::string& path,
                                  const std::string& api_key) {
  httplib::Request request;
  request.method = "GET";
  request.path = path;
  if (!api_key.empty()) {
    request.set_header("Authorization", "Bearer " + api_key);
  }
  return Send(endpoint, request);
}

}  // namespace skippy
