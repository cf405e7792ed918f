// Calls of the management API of one or more servers.
#pragma once

#include <string>
#include <string_view>

#include "skippy/result.h"

namespace skippy {

struct Endpoint {
  std::string host = "127.0.0.1";
  int port = 3131;
  std::string text() const;  // "127.0.0.1:3131", "[::1]:3131"
};

// "host", "host:port", "[::1]:port", each with or without "http://". kInvalidArgument names the
// option --endpoint. Without a port it is `default_port`.
Result<Endpoint> ParseEndpoint(std::string_view text, int default_port = Endpoint{}.port);

struct EndpointAnswer {
  int http_status = 0;
  std::string body;
};

// Waits up to 45 s. kUnavailable when nobody answers. The answer may have any status.
Result<EndpointAnswer> CallEndpoint(const Endpoint& endpoint, const std::string& method,
                                    const std::string& path, const std::string& body);

// GET of the API that clients use. `api_key` empty: none is sent.
Result<EndpointAnswer> GetFromApi(const Endpoint& endpoint, const std::string& path,
                                  const std::string& api_key);

}  // namespace skippy
