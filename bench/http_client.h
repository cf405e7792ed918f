// HTTP as the benches need it: JSON calls and one measured streamed completion. Each call opens
// its own connection.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy::bench {

using Json = nlohmann::ordered_json;

// A 200 with a JSON body. kUnavailable: nobody answered; kInternal: another status or no JSON, the
// text has both.
Result<Json> GetJson(int port, const std::string& path);
Result<Json> PostJson(int port, const std::string& path, const Json& body);

struct CompletionRequest {
  std::vector<Token> prompt;
  TokenCount max_tokens = 1;
  // The whole reply is this token: what random weights say need not be valid UTF-8, which some
  // servers refuse to pass on.
  std::optional<Token> reply_token = std::nullopt;
};

// Greedy, as the client saw it and as the server reports it.
struct Completion {
  std::string text;
  double first_token_ms = 0;  // from before the connection to the first event that has a choice
  double total_ms = 0;
  std::vector<double> event_ms;  // from the same moment to each event that has a choice
  TokenCount prompt_tokens = 0;
  TokenCount cached_tokens = 0;
  TokenCount computed_tokens = 0;
  TokenCount cached_disk_tokens = 0;
  double lookup_ms = 0;
  double restore_ms = 0;
  double import_ms = 0;  // part of restore_ms
  double prefill_ms = 0;
  double engine_cpu_ms = 0;
};

// Streams from /v1/completions. Errors as GetJson; also kInternal for a stream without its end.
Result<Completion> Complete(int port, const CompletionRequest& request);

// All at once, each on a thread of its own; the answers in the order of the requests. The first
// error, if there is one.
Result<std::vector<Completion>> CompleteTogether(int port,
                                                 const std::vector<CompletionRequest>& requests);

}  // namespace skippy::bench
