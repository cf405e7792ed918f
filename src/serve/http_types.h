// What a request handler sees of HTTP, without naming the library underneath.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skippy {

inline constexpr std::string_view kJsonContentType = "application/json; charset=utf-8";
inline constexpr std::string_view kEventStreamContentType = "text/event-stream; charset=utf-8";

struct HttpRequest {
  std::string method;
  std::string path;
  std::string body;
  std::string api_key;  // the one that was presented and accepted; empty: none is asked for
  std::map<std::string, std::string> headers;  // names in lower case; of several, the last
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> path_params;
  // True when nobody waits for the answer any more: the client closed the connection, or the server
  // is stopping. Cheap (one poll of the socket), only for the thread that runs the handler.
  std::function<bool()> client_gone = [] { return false; };
};

// Where a streamed body goes. Used by the connection's thread only.
class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // Sends at once. False: the client is gone, the rest is of no use.
  virtual bool Write(std::string_view bytes) = 0;
  virtual bool ClientGone() = 0;
  // A header that is only known at the end; it follows the body. One of those that the response's
  // `trailers` announce.
  virtual void AddTrailer(std::string name, std::string value) = 0;
};

struct HttpResponse {
  int status = 200;
  std::string content_type{kJsonContentType};
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // Set: `body` is ignored and this writes it, on the connection's thread, after the status line
  // and the headers went out. The body ends when it returns.
  std::function<void(StreamSink&)> stream;
  std::vector<std::string> trailers;  // names of headers that may follow a streamed body
};

// Called on many threads at once. Must not throw.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

}  // namespace skippy
