// `skippy kv-cache status|prune|clear|limits` behind its flags.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/kv_cache_client.h"

namespace skippy {

struct KvCacheArguments {
  enum class Verb { kStatus, kPrune, kClear, kLimits };
  Verb verb = Verb::kStatus;
  std::vector<std::string> endpoints;  // as given; empty: 127.0.0.1 and `port`
  std::optional<int> port;
  bool json = false;
  bool yes = false;
  std::optional<std::string> target;  // SIZE
  std::optional<std::string> model_identity;
  // kLimits; at least one.
  std::optional<std::uint64_t> cache_ram_mib;
  std::optional<std::string> disk_budget;   // SIZE
  std::optional<std::string> minimum_free;  // SIZE
};

// What the command talks to; tests put their own.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& error;
  bool interactive = false;  // somebody can answer a question
};

using EndpointCaller = std::function<Result<EndpointAnswer>(
    const Endpoint&, const std::string& method, const std::string& path, const std::string& body)>;

// Returns the exit status: not 0 when any endpoint failed or the question was not answered by yes.
int RunKvCache(const KvCacheArguments& arguments, const Console& console,
               const EndpointCaller& call);

}  // namespace skippy
