#include "control/management.h"

#include <spdlog/fmt/fmt.h>

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "control/byte_size.h"

namespace skippy {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kStatusPath = "/api/runtime/kv-cache";
constexpr std::string_view kLimitsPath = "/api/runtime/kv-cache/limits";
constexpr std::string_view kPrunePath = "/api/runtime/kv-cache/prune";
constexpr std::string_view kMetricsPath = "/metrics";

ManagementReply ErrorReply(int status, std::string_view code, std::string_view message) {
  ManagementReply reply;
  reply.status = status;
  reply.body = Json{{"error", {{"code", code}, {"message", message}}}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

ManagementReply ErrorReply(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return ErrorReply(400, ToString(error.code), error.text);
    case ErrorCode::kUnavailable:
    case ErrorCode::kBusy:
      return ErrorReply(409, ToString(error.code), error.text);
    default:
      return ErrorReply(500, ToString(error.code), error.text);
  }
}

ManagementReply WrongMethod(std::string allow) {
  ManagementReply reply = ErrorReply(405, "invalid_argument", "only " + allow + " is allowed here");
  reply.allow = std::move(allow);
  return reply;
}

bool IsLoopbackAddress(std::string_view address) {
  if (address.starts_with("::ffff:")) {
    address.remove_prefix(7);
  }
  return address == "::1" || address.starts_with("127.");
}

// `authority` is host[:port], with brackets around an IPv6 address.
bool IsLoopbackAuthority(std::string_view authority) {
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    return end != std::string_view::npos && authority.substr(1, end - 1) == "::1" &&
           (end + 1 == authority.size() || authority[end + 1] == ':');
  }
  const std::string_view host = authority.substr(0, authority.find(':'));
  const bool numeric = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || (numeric && host.starts_with("127."));
}

// A page of another site must not reach this API through the user's browser: neither directly
// (Origin) nor through a name that it made point here (Host).
std::optional<ManagementReply> RefuseForeign(const ManagementRequest& request) {
  if (!IsLoopbackAddress(request.remote_address)) {
    return ErrorReply(403, "forbidden", "the management API serves this machine only");
  }
  if (!request.host.empty() && !IsLoopbackAuthority(request.host)) {
    return ErrorReply(403, "forbidden", "the Host header does not name this machine");
  }
  if (request.origin.empty()) {
    return std::nullopt;
  }
  const std::string_view origin = request.origin;
  const std::size_t scheme_end = origin.find("://");
  if (scheme_end == std::string_view::npos || !IsLoopbackAuthority(origin.substr(scheme_end + 3))) {
    return ErrorReply(403, "forbidden", "requests of other sites are refused");
  }
  return std::nullopt;
}

struct Mutation {
  std::optional<std::uint64_t> target_bytes;
  std::optional<ModelIdentity> model;
};

Error Bad(std::string text) { return MakeError(ErrorCode::kInvalidArgument, std::move(text)); }

std::optional<ModelIdentity> ParseIdentity(std::string_view hex) {
  ModelIdentity out;
  if (hex.size() != 2 * ModelIdentity::kByteCount) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      digit = (c | 0x20) - 'a' + 10;
    } else {
      return std::nullopt;
    }
    out.bytes[i / 2] = static_cast<std::uint8_t>(out.bytes[i / 2] * 16 + digit);
  }
  return out;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

Result<ModelIdentity> ReadIdentity(const Json& value) {
  if (!value.is_string()) {
    return Bad("model_identity: expected a text");
  }
  const std::string& given = value.get_ref<const std::string&>();
  const std::string_view text = Trimmed(given);
  if (text.empty()) {
    return Bad("model_identity: is blank; leave it out to mean every model");
  }
  const auto identity = ParseIdentity(text);
  if (!identity) {
    return Bad(fmt::format("model_identity: {} is not valid: expected {} hexadecimal digits",
                           QuoteForMessage(text), 2 * ModelIdentity::kByteCount));
  }
  return *identity;
}

// An empty body means the defaults. Whatever is not understood is refused, so that a mistyped
// filter never widens what is removed.
Result<Mutation> ReadMutation(const std::string& body, bool takes_target) {
  Mutation out;
  if (Trimmed(body).empty()) {
    return out;
  }
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) {
    return Bad("the body is not a JSON object");
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "model_identity") {
      SKIPPY_ASSIGN_OR_RETURN(out.model, ReadIdentity(value));
    } else if (name == "target_bytes" && takes_target) {
      if (!value.is_number_unsigned()) {
        return Bad("target_bytes: expected a whole number of bytes, 0 or more");
      }
      out.target_bytes = value.get<std::uint64_t>();
    } else {
      return Bad(fmt::format("{}: unknown field", QuoteForMessage(name)));
    }
  }
  return out;
}

struct Limits {
  std::optional<std::uint64_t> ram_budget_bytes;
  std::optional<std::uint64_t> disk_budget_bytes;
  std::optional<std::uint64_t> minimum_free_bytes;
};

Result<std::uint64_t> ReadLimit(const std::string& name, const Json& value, std::uint64_t unit) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max() / unit) {
    return Bad(fmt::format("{}: expected a whole number of {}, 0 or more", name,
                           unit == kMiB ? "MiB" : "bytes"));
  }
  return value.get<std::uint64_t>() * unit;
}

// Everything is checked before anything is changed.
Result<Limits> ReadLimits(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object() || json.empty()) {
    return Bad(
        "expected an object with cache_ram_mib, disk_budget_bytes or disk_minimum_free_bytes");
  }
  Limits out;
  for (const auto& [name, value] : json.items()) {
    if (name == "cache_ram_mib") {
      SKIPPY_ASSIGN_OR_RETURN(out.ram_budget_bytes, ReadLimit(name, value, kMiB));
    } else if (name == "disk_budget_bytes") {
      SKIPPY_ASSIGN_OR_RETURN(out.disk_budget_bytes, ReadLimit(name, value, 1));
    } else if (name == "disk_minimum_free_bytes") {
      SKIPPY_ASSIGN_OR_RETURN(out.minimum_free_bytes, ReadLimit(name, value, 1));
      if (*out.minimum_free_bytes < kLowestMinimumFreeBytes) {
        return Bad(fmt::format("{}: expected at least {}", name, kLowestMinimumFreeBytes));
      }
    } else {
      return Bad(fmt::format("{}: unknown field", QuoteForMessage(name)));
    }
  }
  return out;
}

bool IsDiskUsable(TierState state) {
  return state == TierState::kActive || state == TierState::kReadOnlyLowSpace ||
         state == TierState::kPruningToBudget;
}

ManagementReply Inactive(const CacheStatus& status) {
  return ErrorReply(409, "unavailable",
                    fmt::format("the disk tier is {}{}{}", ToString(status.disk_state),
                                status.disk_reason.empty() ? "" : ": ", status.disk_reason));
}

}  // namespace

ManagementApi::ManagementApi(Cache* cache, DiskConfiguration configured)
    : cache_(cache), configured_(std::move(configured)) {}

ManagementReply ManagementApi::Handle(const ManagementRequest& request) const {
  if (auto refusal = RefuseForeign(request)) {
    return *refusal;
  }
  if (request.target == kMetricsPath) {
    if (request.method != "GET") {
      return WrongMethod("GET");
    }
    ManagementReply reply;
    reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    reply.body = MetricsText(Snapshot());
    return reply;
  }
  return HandleCache(request);
}

ManagementReply ManagementApi::HandleCache(const ManagementRequest& request) const {
  const std::string_view target = request.target;
  const std::string_view path = target.substr(0, target.find('?'));
  if (path != kStatusPath && path != kPrunePath && path != kLimitsPath) {
    return ErrorReply(404, "not_found", "there is nothing here");
  }
  if (path.size() != target.size()) {
    return ErrorReply(400, "invalid_argument", "parameters belong into the body");
  }
  if (path == kLimitsPath) {
    return request.method == "POST" ? SetLimits(request.body) : WrongMethod("POST");
  }
  if (path == kPrunePath) {
    return request.method == "POST" ? Prune(request.body) : WrongMethod("POST");
  }
  if (request.method == "DELETE") {
    return Clear(request.body);
  }
  if (request.method != "GET") {
    return WrongMethod("GET, DELETE");
  }
  ManagementReply reply;
  reply.body = StatusJson(Snapshot());
  return reply;
}

ManagementReply ManagementApi::Prune(const std::string& body) const {
  const auto mutation = ReadMutation(body, true);
  if (!mutation) {
    return ErrorReply(mutation.error());
  }
  const CacheStatus status = cache_->GetStatus();
  const bool ram_alone = status.disk_state == TierState::kOff && status.ram.budget_bytes > 0;
  if (!IsDiskUsable(status.disk_state) && !ram_alone) {
    return Inactive(status);
  }
  const std::uint64_t budget_bytes = ram_alone ? status.ram.budget_bytes : status.disk.budget_bytes;
  if (!mutation->target_bytes && budget_bytes == 0) {
    return ErrorReply(400, "invalid_argument",
                      "the budget is 0, so there is no default target: name target_bytes, or "
                      "clear the cache");
  }
  // Divided first: a budget may be near the end of 64 bits.
  const std::uint64_t low_water_bytes = budget_bytes / 100 * kLowWaterPercent;
  return MutationReply(
      cache_->Prune(mutation->target_bytes.value_or(low_water_bytes), mutation->model));
}

ManagementReply ManagementApi::SetLimits(const std::string& body) const {
  const auto limits = ReadLimits(body);
  if (!limits) {
    return ErrorReply(limits.error());
  }
  if (limits->disk_budget_bytes || limits->minimum_free_bytes) {
    // What is not named stays.
    const CacheStatus status = cache_->GetStatus();
    if (!IsDiskUsable(status.disk_state)) {
      return Inactive(status);
    }
    const Status changed =
        cache_->SetDiskLimits(limits->disk_budget_bytes.value_or(status.disk.budget_bytes),
                              limits->minimum_free_bytes.value_or(status.disk.minimum_free_bytes));
    if (!changed) {
      return ErrorReply(changed.error());
    }
  }
  if (limits->ram_budget_bytes) {
    if (const Status changed = cache_->SetRamLimit(*limits->ram_budget_bytes); !changed) {
      return ErrorReply(changed.error());
    }
  }
  ManagementReply reply;
  reply.body = StatusJson(Snapshot());
  return reply;
}

ManagementReply ManagementApi::Clear(const std::string& body) const {
  const auto mutation = ReadMutation(body, false);
  if (!mutation) {
    return ErrorReply(mutation.error());
  }
  const CacheStatus status = cache_->GetStatus();
  if (!IsDiskUsable(status.disk_state) && status.ram.budget_bytes == 0) {
    return Inactive(status);
  }
  // First: what is resident and not yet recorded would be recorded after the tiers below are empty.
  ForgetResidents(mutation->model);
  return MutationReply(cache_->Clear(mutation->model));
}

void ManagementApi::ForgetResidents(const std::optional<ModelIdentity>& model) const {
  Engine* engine = engine_.load();
  if (engine == nullptr) {
    return;
  }
  const ModelInfo info = engine->Info();
  if (!model || (info.identity_known && info.model_identity == *model)) {
    engine->ForgetResidents();
  }
}

ManagementReply ManagementApi::MutationReply(const Result<std::uint64_t>& freed_bytes) const {
  if (!freed_bytes) {
    return ErrorReply(freed_bytes.error());
  }
  ManagementReply reply;
  reply.body = MutationJson(*freed_bytes, Snapshot());
  return reply;
}

StatusSnapshot ManagementApi::Snapshot() const {
  StatusSnapshot out;
  out.configured = configured_;
  out.cache = cache_->GetStatus();
  if (const Engine* engine = engine_.load()) {
    out.model = engine->Info();
    out.engine = engine->GetStatus();
  }
  return out;
}

}  // namespace skippy
