// A client for tests of the HTTP layer: plain calls, server-sent events, and hanging up.
#pragma once

#include <cpp-httplib/httplib.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace skippy::testing {

using TestJson = nlohmann::ordered_json;

struct HttpReply {
  int status = 0;  // 0: no answer
  std::map<std::string, std::string> headers;
  std::string body;

  TestJson json() const { return TestJson::parse(body, nullptr, false); }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct StreamReply {
  HttpReply head;                // body: what came, as it came
  std::vector<TestJson> events;  // every data: but [DONE]
  bool done = false;             // [DONE] came last
};

// One connection at a time; not thread-safe but for HangUp.
class HttpClient {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  explicit HttpClient(int port, const std::string& host = "127.0.0.1") : client_(host, port) {
    client_.set_read_timeout(30, 0);
  }

  HttpReply Get(const std::string& path, const Headers& headers = {}) {
    return ToReply(client_.Get(path, ToHeaders(headers)));
  }

  HttpReply Options(const std::string& path, const Headers& headers = {}) {
    return ToReply(client_.Options(path, ToHeaders(headers)));
  }

  HttpReply Post(const std::string& path, const std::string& body, const Headers& headers = {}) {
    return ToReply(client_.Post(path, ToHeaders(headers), body, "application/json"));
  }
  HttpReply Post(const std::string& path, const TestJson& body) { return Post(path, body.dump()); }

  // Reads events until the stream ends; `on_event` may hang up by returning false.
  StreamReply PostStream(const std::string& path, const TestJson& body,
                         const std::function<bool(const TestJson&)>& on_event = {}) {
    StreamReply reply;
    std::string pending;
    const auto receive = [&](const char* data, std::size_t byte_count) {
      reply.head.body.append(data, byte_count);
      pending.append(data, byte_count);
      return TakeEvents(pending, reply, on_event);
    };
    const httplib::Result result = client_.Post(
        path, httplib::Headers(), body.dump(), "application/json",
        [&](const char* data, std::size_t byte_count) { return receive(data, byte_count); });
    if (result) {
      const std::string received = std::move(reply.head.body);
      reply.head = ToReply(result);
      reply.head.body = received;
    }
    return reply;
  }

  // Closes the connection under a call that another thread waits for.
  void HangUp() { client_.stop(); }

 private:
  static httplib::Headers ToHeaders(const Headers& headers) {
    return {headers.begin(), headers.end()};
  }

  static HttpReply ToReply(const httplib::Result& result) {
    HttpReply reply;
    if (result) {
      reply.status = result->status;
      reply.body = result->body;
      for (const auto& [name, value] : result->headers) {
        reply.headers[name] = value;
      }
    }
    return reply;
  }

  static bool TakeEvents(std::string& pending, StreamReply& reply,
                         const std::function<bool(const TestJson&)>& on_event) {
    constexpr std::string_view kData = "data: ";
    for (std::size_t end = pending.find("\n\n"); end != std::string::npos;
         end = pending.find("\n\n")) {
      const std::string event = pending.substr(0, end);
      pending.erase(0, end + 2);
      if (!event.starts_with(kData)) {
        continue;
      }
      const std::string payload = event.substr(kData.size());
      reply.done = payload == "[DONE]";
      if (!reply.done) {
        reply.events.push_back(TestJson::parse(payload, nullptr, false));
        if (on_event && !on_event(reply.events.back())) {
          return false;
        }
      }
    }
    return true;
  }

  httplib::Client client_;
};

}  // namespace skippy::testing
