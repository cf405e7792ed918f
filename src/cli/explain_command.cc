#include "cli/explain_command.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command_line.h"
#include "cli/kv_cache_text.h"
#include "control/byte_size.h"

namespace skippy {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t Number(const Json& json, const char* name) {
  const Json found = json.is_object() ? json.value(name, Json()) : Json();
  return found.is_number() ? found.get<std::int64_t>() : 0;
}

std::string Text(const Json& json, const char* name) {
  const Json found = json.is_object() ? json.value(name, Json()) : Json();
  return found.is_string() ? found.get<std::string>() : "";
}

// On one line, whatever the prompt held.
std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string RemovedLine(const Json& prefix) {
  const Json removed = prefix.value("removed", Json());
  if (!removed.is_object()) {
    return "";
  }
  return fmt::format(
      "removed: {} tokens at {:%Y-%m-%dT%H:%M:%SZ} by {}\n", Number(removed, "tokens"),
      fmt::gmtime(static_cast<std::time_t>(Number(removed, "at"))), Text(removed, "by"));
}

std::string ChangedLines(const Json& prefix) {
  const Json identity = prefix.value("identity_changed", Json());
  if (!identity.is_object()) {
    return "";
  }
  std::string out = fmt::format("kept elsewhere: {} tokens\n", Number(identity, "tokens"));
  for (const Json& field : identity.value("changed", Json::array())) {
    out += fmt::format("changed: {}: {} -> {}\n", Text(field, "field"), Text(field, "before"),
                       Text(field, "now"));
  }
  return out;
}

// "" where the explanation quotes nothing.
std::string DivergenceLines(const Json& prefix) {
  std::string out;
  if (const std::string nearest = Text(prefix, "nearest_request"); !nearest.empty()) {
    out +=
        fmt::format("nearest: {}, {} tokens in common\n", nearest, Number(prefix, "common_tokens"));
  }
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"text_before", "both"}, {"text_earlier", "earlier"}, {"text_now", "now"}};
  for (const auto& [name, label] : kParts) {
    if (prefix.contains(name)) {
      out += fmt::format("{}: {}\n", label, Quoted(Text(prefix, name)));
    }
  }
  const std::string hint = Text(prefix, "hint");
  return out + (hint.empty() ? "" : fmt::format("hint: {}\n", hint));
}

}  // namespace

std::string ExplanationText(const Json& explanation) {
  const Json timings = explanation.value("timings", Json::object());
  const Json prefix = explanation.value("prefix", Json::object());
  std::string out = fmt::format(
      "{}: {} prompt tokens: {} from memory of the engine, {} from RAM, {} from disk, {} "
      "computed\n",
      Text(explanation, "request_id"), Number(explanation, "prompt_tokens"),
      Number(timings, "cached_l1"), Number(timings, "cached_l2"), Number(timings, "cached_l3"),
      Number(timings, "computed"));
  out += fmt::format("{}: {}\n", Text(prefix, "reason"), Text(prefix, "meaning"));
  out += RemovedLine(prefix) + ChangedLines(prefix) + DivergenceLines(prefix);
  const Json saved = explanation.value("saved_ms_estimate", Json());
  return out + (saved.is_number() ? fmt::format("saved: about {:.0f} ms\n", saved.get<double>())
                                  : "saved: not known yet\n");
}

int RunExplain(const ExplainArguments& arguments, const Console& console,
               const ExplainCaller& call) {
  const auto fail = [&console](const std::string& text, int exit_status) {
    console.error << "skippy: " << text << "\n";
    return exit_status;
  };
  const bool is_id =
      !arguments.request_id.empty() &&
      std::all_of(arguments.request_id.begin(), arguments.request_id.end(),
                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
  if (!is_id) {
    return fail(
        fmt::format("ID: {} is not the id of a request", QuoteForMessage(arguments.request_id)),
        kExitUsage);
  }
  Endpoint endpoint;
  endpoint.port = arguments.port;
  if (arguments.endpoint) {
    const auto parsed = ParseEndpoint(*arguments.endpoint, arguments.port);
    if (!parsed) {
      return fail(parsed.error().text, kExitUsage);
    }
    endpoint = *parsed;
  }
  const auto answer =
      call(endpoint, "/v1/cache/explain/" + arguments.request_id, arguments.api_key);
  if (!answer) {
    return fail(answer.error().text, kExitFailed);
  }
  const Json body = Json::parse(answer->body, nullptr, false);
  if (answer->http_status != 200 || !body.is_object()) {
    return fail(endpoint.text() + ": " + ErrorText(answer->http_status, answer->body), kExitFailed);
  }
  console.out << (arguments.json ? body.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                                 : ExplanationText(body));
  return 0;
}

}  // namespace skippy
