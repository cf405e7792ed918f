#include "bench/http_client.h"

#include <cpp-httplib/httplib.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A cold prompt of a large model on a busy machine takes minutes.
constexpr int kReadTimeoutSeconds = 1800;
constexpr std::size_t kShownBodyBytes = 300;
constexpr int kForcingBias = 100;  // the largest that the API takes

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

httplib::Client MakeClient(int port) {
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(kReadTimeoutSeconds, 0);
  client.set_tcp_nodelay(true);
  return client;
}

Error Unanswered(const std::string& path, const httplib::Result& result) {
  return MakeError(ErrorCode::kUnavailable, path + ": " + httplib::to_string(result.error()));
}

Error BadAnswer(const std::string& path, int status, const std::string& body) {
  return MakeError(ErrorCode::kInternal, path + ": HTTP " + std::to_string(status) + ": " +
                                             body.substr(0, kShownBodyBytes));
}

Result<Json> ReadJson(const std::string& path, const httplib::Result& result) {
  if (!result) {
    return Unanswered(path, result);
  }
  Json json = Json::parse(result->body, nullptr, false);
  if (result->status != 200 || json.is_discarded()) {
    return BadAnswer(path, result->status, result->body);
  }
  return json;
}

template <class Number>
Number Value(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<Number>() : Number{};
}

// Takes the events of a stream as they come.
class EventReader {
 public:
  explicit EventReader(Clock::time_point start) : start_(start) {}

  bool Take(std::string_view data) {
    received_.append(data);
    pending_.append(data);
    for (std::size_t end = pending_.find("\n\n"); end != std::string::npos;
         end = pending_.find("\n\n")) {
      TakeEvent(std::string_view(pending_).substr(0, end));
      pending_.erase(0, end + 2);
    }
    return true;
  }

  bool done() const { return done_ && has_usage_; }
  const std::string& received() const { return received_; }
  Completion& out() { return out_; }

 private:
  void TakeEvent(std::string_view event) {
    constexpr std::string_view kData = "data: ";
    if (!event.starts_with(kData)) {
      return;
    }
    event.remove_prefix(kData.size());
    done_ = event == "[DONE]";
    const Json json = Json::parse(event, nullptr, false);
    if (done_ || !json.is_object()) {
      return;
    }
    TakeChoices(json);
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      TakeUsage(*usage, json.value("timings", Json::object()));
    }
  }

  void TakeChoices(const Json& event) {
    const auto choices = event.find("choices");
    if (choices == event.end() || choices->empty()) {
      return;
    }
    out_.event_ms.push_back(MillisecondsSince(start_));
    out_.first_token_ms = out_.event_ms.front();
    out_.text += choices->front().value("text", std::string());
  }

  void TakeUsage(const Json& usage, const Json& timings) {
    has_usage_ = true;
    out_.prompt_tokens = Value<TokenCount>(usage, "prompt_tokens");
    out_.cached_tokens =
        Value<TokenCount>(usage.value("prompt_tokens_details", Json::object()), "cached_tokens");
    out_.computed_tokens = Value<TokenCount>(timings, "prompt_n");
    out_.cached_disk_tokens = Value<TokenCount>(timings, "cached_l3");
    out_.lookup_ms = Value<double>(timings, "lookup_ms");
    out_.restore_ms = Value<double>(timings, "restore_ms");
    out_.import_ms = Value<double>(timings, "import_ms");
    out_.prefill_ms = Value<double>(timings, "prefill_ms");
    out_.engine_cpu_ms = Value<double>(timings, "engine_cpu_ms");
  }

  const Clock::time_point start_;
  std::string pending_;
  std::string received_;
  bool done_ = false;
  bool has_usage_ = false;
  Completion out_;
};

}  // namespace

Result<Json> GetJson(int port, const std::string& path) {
  return ReadJson(path, MakeClient(port).Get(path));
}

Result<Json> PostJson(int port, const std::string& path, const Json& body) {
  return ReadJson(path, MakeClient(port).Post(path, body.dump(), "application/json"));
}

Result<Completion> Complete(int port, const CompletionRequest& request) {
  const std::string path = "/v1/completions";
  Json body = {{"prompt", request.prompt}, {"max_tokens", request.max_tokens},
               {"temperature", 0},         {"ignore_eos", true},
               {"stream", true},           {"stream_options", {{"include_usage", true}}}};
  if (request.reply_token) {
    body["logit_bias"] = Json{{std::to_string(*request.reply_token), kForcingBias}};
  }
  httplib::Client client = MakeClient(port);
  const Clock::time_point start = Clock::now();
  EventReader reader(start);
  const httplib::Result result =
      client.Post(path, httplib::Headers(), body.dump(), "application/json",
                  [&reader](const char* data, std::size_t count) {
                    return reader.Take({data, count});
                  });
  if (!result) {
    return Unanswered(path, result);
  }
  if (result->status != 200 || !reader.done()) {
    const std::string& all = reader.received();
    return BadAnswer(path, result->status,
                     all.substr(all.size() - std::min(all.size(), kShownBodyBytes)));
  }
  reader.out().total_ms = MillisecondsSince(start);
  return reader.out();
}

Result<std::vector<Completion>> CompleteTogether(int port,
                                                 const std::vector<CompletionRequest>& requests) {
  std::vector<std::future<Result<Completion>>> running;
  for (const CompletionRequest& request : requests) {
    running.push_back(std::async(std::launch::async, Complete, port, request));
  }
  std::vector<Result<Completion>> results;
  for (auto& each : running) {
    results.push_back(each.get());
  }
  std::vector<Completion> out;
  for (Result<Completion>& result : results) {
    SKIPPY_ASSIGN_OR_RETURN(Completion completion, std::move(result));
    out.push_back(std::move(completion));
  }
  return out;
}

}  // namespace skippy::bench
