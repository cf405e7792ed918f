// `skippy kv-cache explain ID` behind its flags.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/kv_cache_client.h"
#include "cli/kv_cache_commands.h"

namespace skippy {

inline constexpr int kServePort = 9337;  // the default of --port of `skippy serve`

struct ExplainArguments {
  std::string request_id;
  std::optional<std::string> endpoint;  // as given; empty: 127.0.0.1 and `port`
  int port = kServePort;
  std::string api_key;  // empty: none is sent
  bool json = false;
};

using ExplainCaller = std::function<Result<EndpointAnswer>(const Endpoint&, const std::string& path,
                                                           const std::string& api_key)>;

// Returns the exit status: not 0 when there is no explanation.
int RunExplain(const ExplainArguments& arguments, const Console& console,
               const ExplainCaller& call);

// The explanation for people, several lines.
std::string ExplanationText(const nlohmann::ordered_json& explanation);

}  // namespace skippy
