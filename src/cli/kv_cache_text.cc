#include "cli/kv_cache_text.h"

#include <spdlog/fmt/fmt.h>

#include <map>

#include "control/byte_size.h"

namespace skippy {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t Number(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  const Json found = json.contains(at) ? json.at(at) : Json();
  return found.is_number_unsigned() ? found.get<std::uint64_t>() : 0;
}

std::string Text(const Json& json, const char* pointer, const std::string& otherwise) {
  const Json::json_pointer at(pointer);
  const Json found = json.contains(at) ? json.at(at) : Json();
  return found.is_string() ? found.get<std::string>() : otherwise;
}

std::string Bytes(const Json& json, const char* pointer) {
  return FormatByteSize(Number(json, pointer));
}

std::string StateText(const Json& status) {
  std::string out = Text(status, "/effective/state", "unknown");
  for (const char* pointer : {"/effective/reason", "/effective/detail"}) {
    const std::string more = Text(status, pointer, "");
    out += more.empty() ? "" : ": " + more;
  }
  return out;
}

std::string ModelLines(const Json& status) {
  struct Total {
    std::string name;
    std::uint64_t prefixes = 0;
    std::uint64_t tokens = 0;
    std::uint64_t total_bytes = 0;
  };
  std::map<std::string, Total> totals;
  const Json inventory = status.value("inventory", Json::array());
  for (const Json& entry : inventory) {
    Total& total = totals[Text(entry, "/model_identity", "unknown")];
    total.name = Text(entry, "/model_name", "");
    ++total.prefixes;
    total.tokens += Number(entry, "/token_count");
    total.total_bytes += Number(entry, "/total_bytes");
  }
  std::string out;
  for (const auto& [identity, total] : totals) {
    out += fmt::format("  {}  {}: {} prefixes, {} tokens, {}\n", identity, total.name,
                       total.prefixes, total.tokens, FormatByteSize(total.total_bytes));
  }
  const std::uint64_t omitted = Number(status, "/inventory_omitted");
  return omitted == 0 ? out : out + fmt::format("  and {} prefixes more\n", omitted);
}

std::string EngineLines(const Json& status) {
  const std::string reason = Text(status, "/engine/model/cache_reason", "");
  std::string out = fmt::format("engine      {}", Text(status, "/engine/state", "unknown"));
  if (status.contains(Json::json_pointer("/engine/model"))) {
    out += fmt::format(", {} ({}), K {} V {} ({})", Text(status, "/engine/model/name", ""),
                       Text(status, "/engine/model/family", ""),
                       Text(status, "/engine/model/cache_type_k", ""),
                       Text(status, "/engine/model/cache_type_v", ""),
                       Text(status, "/engine/model/cache_type_source", ""));
  }
  if (!reason.empty()) {
    out += fmt::format("\nnot cached  {}", reason);
  }
  return out +
         fmt::format("\nprompts     {} tokens: {} from L1, {} from L2, {} from L3, {} computed\n",
                     Number(status, "/engine/prompt_tokens_total"),
                     Number(status, "/engine/cached_l1_tokens_total"),
                     Number(status, "/engine/cached_l2_tokens_total"),
                     Number(status, "/engine/cached_l3_tokens_total"),
                     Number(status, "/engine/computed_tokens_total"));
}

std::string RamLines(const Json& status) {
  if (Number(status, "/ram/budget_bytes") == 0) {
    return "ram         off\n";
  }
  return fmt::format(
      "ram         {} of {} ({} in flight), {} prefixes in {} segments, {} logical\n"
      "            {} hits, {} misses, {} evictions, {} promotions, {} refused\n",
      Bytes(status, "/ram/resident_bytes"), Bytes(status, "/ram/budget_bytes"),
      Bytes(status, "/ram/in_flight_bytes"), Number(status, "/ram/entries"),
      Number(status, "/ram/segments"), Bytes(status, "/ram/logical_bytes"),
      Number(status, "/ram/hits"), Number(status, "/ram/misses"), Number(status, "/ram/evictions"),
      Number(status, "/ram/promotions"), Number(status, "/ram/admission_refusals"));
}

}  // namespace

std::string StatusText(const Json& status) {
  std::string out = fmt::format("state       {}\n", StateText(status));
  out += fmt::format("mode        {} ({})\n", Text(status, "/configured/mode", "unknown"),
                     Text(status, "/configured/sources/mode", "unknown"));
  out += fmt::format("root        {}\n", Text(status, "/configured/directory", "none"));
  out += fmt::format("used        {} of {} ({} free on the file system, {} kept free)\n",
                     Bytes(status, "/usage/used_bytes"), Bytes(status, "/usage/budget_bytes"),
                     Bytes(status, "/usage/filesystem_available_bytes"),
                     Bytes(status, "/usage/minimum_free_bytes"));
  out += fmt::format("stored      {} manifests, {} segments, {} payload, {} quarantined\n",
                     Number(status, "/usage/manifests"), Number(status, "/usage/unique_segments"),
                     Bytes(status, "/usage/payload_bytes"),
                     Number(status, "/usage/quarantined_objects"));
  out += RamLines(status);
  out += fmt::format(
      "activity    {} hits, {} misses, {} fills ({} read), {} writes ({} written)\n"
      "            {} evictions, {} corrupt, {} records dropped\n",
      Number(status, "/activity/hits"), Number(status, "/activity/misses"),
      Number(status, "/activity/fills"), Bytes(status, "/activity/bytes_read"),
      Number(status, "/activity/writes"), Bytes(status, "/activity/bytes_written"),
      Number(status, "/activity/evictions"), Number(status, "/activity/corrupt_entries"),
      Number(status, "/activity/records_dropped"));
  const std::string error = Text(status, "/activity/last_error", "");
  if (!error.empty()) {
    out += fmt::format("last error  {}\n", error);
  }
  out += EngineLines(status);
  const std::string models = ModelLines(status);
  return models.empty() ? out : out + "models\n" + models;
}

std::string StatusLine(const Json& status) {
  return fmt::format("{}, {} of {} used", StateText(status), Bytes(status, "/usage/used_bytes"),
                     Bytes(status, "/usage/budget_bytes"));
}

std::string LimitsLine(const Json& status) {
  return fmt::format("ram {} of {} used; disk {}, {} kept free",
                     Bytes(status, "/ram/resident_bytes"), Bytes(status, "/ram/budget_bytes"),
                     StatusLine(status), Bytes(status, "/usage/minimum_free_bytes"));
}

std::string MutationLine(const Json& reply) {
  return fmt::format("freed {}, {} of {} used", Bytes(reply, "/freed_bytes"),
                     Bytes(reply, "/status/usage/used_bytes"),
                     Bytes(reply, "/status/usage/budget_bytes"));
}

std::string ErrorText(int http_status, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const std::string message = json.is_object() ? Text(json, "/error/message", "") : "";
  return message.empty() ? fmt::format("HTTP status {}: {}", http_status, QuoteForMessage(body))
                         : message;
}

}  // namespace skippy
