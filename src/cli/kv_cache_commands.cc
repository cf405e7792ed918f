#include "cli/kv_cache_commands.h"

#include <spdlog/fmt/fmt.h>

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command_line.h"
#include "cli/kv_cache_text.h"
#include "control/byte_size.h"

namespace skippy {
namespace {

using Json = nlohmann::ordered_json;
using Verb = KvCacheArguments::Verb;

constexpr const char* kPath = "/api/runtime/kv-cache";

struct Call {
  std::string method;
  std::string path;
  std::string body;
};

struct Outcome {
  Endpoint endpoint;
  Json reply;         // of a good answer
  std::string error;  // empty: good
};

Result<std::vector<Endpoint>> ResolveEndpoints(const KvCacheArguments& arguments) {
  if (arguments.endpoints.empty()) {
    Endpoint local;
    local.port = arguments.port.value_or(local.port);
    return std::vector<Endpoint>{local};
  }
  if (arguments.port) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--port: cannot be combined with --endpoint, which names the port itself");
  }
  std::vector<Endpoint> out;
  for (const std::string& text : arguments.endpoints) {
    SKIPPY_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    out.push_back(std::move(endpoint));
  }
  return out;
}

// Nothing when `text` was not given.
Status PutByteSize(const char* flag, const std::optional<std::string>& text, const char* field,
                   Json* body) {
  if (!text) {
    return {};
  }
  const auto byte_count = ParseByteSize(*text);
  if (!byte_count) {
    return MakeError(ErrorCode::kInvalidArgument,
                     fmt::format("{}: {} is not valid: expected {}", flag, QuoteForMessage(*text),
                                 kByteSizeExpectation));
  }
  (*body)[field] = *byte_count;
  return {};
}

Result<Call> MakeLimitsCall(const KvCacheArguments& arguments) {
  Json body = Json::object();
  if (arguments.cache_ram_mib) {
    body["cache_ram_mib"] = *arguments.cache_ram_mib;
  }
  SKIPPY_RETURN_IF_ERROR(
      PutByteSize("--kv-cache-disk-budget", arguments.disk_budget, "disk_budget_bytes", &body));
  SKIPPY_RETURN_IF_ERROR(
      PutByteSize("--kv-cache-min-free", arguments.minimum_free, "disk_minimum_free_bytes", &body));
  if (body.empty()) {
    return MakeError(
        ErrorCode::kInvalidArgument,
        "name what to change: --cache-ram, --kv-cache-disk-budget or --kv-cache-min-free");
  }
  return Call{"POST", std::string(kPath) + "/limits", body.dump()};
}

Result<Call> MakeCall(const KvCacheArguments& arguments) {
  if (arguments.verb == Verb::kStatus) {
    return Call{"GET", kPath, ""};
  }
  if (arguments.verb == Verb::kLimits) {
    return MakeLimitsCall(arguments);
  }
  Json body = Json::object();
  SKIPPY_RETURN_IF_ERROR(PutByteSize("--target", arguments.target, "target_bytes", &body));
  if (arguments.model_identity) {
    body["model_identity"] = *arguments.model_identity;
  }
  const std::string text =
      body.empty() ? "" : body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return arguments.verb == Verb::kPrune ? Call{"POST", std::string(kPath) + "/prune", text}
                                        : Call{"DELETE", kPath, text};
}

std::string Question(const KvCacheArguments& arguments, const std::vector<Endpoint>& endpoints) {
  std::string where;
  for (const Endpoint& endpoint : endpoints) {
    where += (where.empty() ? "" : ", ") + endpoint.text();
  }
  const std::string what =
      arguments.model_identity
          ? fmt::format("what is cached of model {}", QuoteForMessage(*arguments.model_identity))
          : "everything that is cached";
  if (arguments.verb == Verb::kClear) {
    return fmt::format("Remove {} on {}? [y/N] ", what, where);
  }
  return fmt::format("Evict from {} on {}, down to {}? [y/N] ", what, where,
                     arguments.target.value_or("85 % of the budget"));
}

// Only a clear yes is one; the end of the input is a no.
bool IsConfirmed(const std::string& question, const Console& console) {
  console.error << question << std::flush;
  std::string answer;
  std::getline(console.in, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Outcome CallOne(const Endpoint& endpoint, const Call& call, const EndpointCaller& caller) {
  Outcome out{endpoint, {}, ""};
  const auto answer = caller(endpoint, call.method, call.path, call.body);
  if (!answer) {
    out.error = answer.error().text;
    return out;
  }
  if (answer->http_status < 200 || answer->http_status > 299) {
    out.error = ErrorText(answer->http_status, answer->body);
    return out;
  }
  out.reply = Json::parse(answer->body, nullptr, false);
  if (!out.reply.is_object()) {
    out.error = "the answer is not a JSON object";
  }
  return out;
}

std::string Line(const KvCacheArguments& arguments, const Outcome& outcome) {
  if (arguments.verb == Verb::kLimits) {
    return LimitsLine(outcome.reply);
  }
  return arguments.verb == Verb::kStatus ? StatusLine(outcome.reply) : MutationLine(outcome.reply);
}

void PrintOne(const KvCacheArguments& arguments, const Outcome& outcome, const Console& console) {
  if (!outcome.error.empty()) {
    console.error << "skippy: " << outcome.endpoint.text() << ": " << outcome.error << "\n";
  } else if (arguments.json) {
    console.out << outcome.reply.dump(2) << "\n";
  } else if (arguments.verb == Verb::kStatus) {
    console.out << StatusText(outcome.reply);
  } else {
    console.out << Line(arguments, outcome) << "\n";
  }
}

void PrintMany(const KvCacheArguments& arguments, const std::vector<Outcome>& outcomes,
               const Console& console) {
  Json all = Json::array();
  for (const Outcome& outcome : outcomes) {
    const std::string where = outcome.endpoint.text();
    const bool good = outcome.error.empty();
    if (arguments.json) {
      all.push_back(good ? Json{{"endpoint", where}, {"reply", outcome.reply}}
                         : Json{{"endpoint", where}, {"error", outcome.error}});
    } else {
      console.out << where << ": " << (good ? Line(arguments, outcome) : "error: " + outcome.error)
                  << "\n";
    }
  }
  if (arguments.json) {
    console.out << all.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
}

int Refuse(const Console& console, const std::string& text, int exit_status) {
  console.error << "skippy: " << text << "\n";
  return exit_status;
}

}  // namespace

int RunKvCache(const KvCacheArguments& arguments, const Console& console,
               const EndpointCaller& call) {
  const auto endpoints = ResolveEndpoints(arguments);
  if (!endpoints) {
    return Refuse(console, endpoints.error().text, kExitUsage);
  }
  const auto request = MakeCall(arguments);
  if (!request) {
    return Refuse(console, request.error().text, kExitUsage);
  }
  const bool removes = arguments.verb == Verb::kPrune || arguments.verb == Verb::kClear;
  if (removes && !arguments.yes) {
    if (!console.interactive) {
      return Refuse(console, "--yes: needed, because there is no terminal to ask on", kExitUsage);
    }
    if (!IsConfirmed(Question(arguments, *endpoints), console)) {
      return Refuse(console, "cancelled, nothing was removed", kExitFailed);
    }
  }
  std::vector<Outcome> outcomes;
  bool good = true;
  for (const Endpoint& endpoint : *endpoints) {
    outcomes.push_back(CallOne(endpoint, *request, call));
    good = good && outcomes.back().error.empty();
  }
  if (outcomes.size() == 1) {
    PrintOne(arguments, outcomes.front(), console);
  } else {
    PrintMany(arguments, outcomes, console);
  }
  return good ? 0 : kExitFailed;
}

}  // namespace skippy
