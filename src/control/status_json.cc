#include "control/status_json.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace skippy {
namespace {

using Json = nlohmann::ordered_json;

std::string_view ModeWord(DiskMode mode) {
  switch (mode) {
    case DiskMode::kOff:
      return "off";
    case DiskMode::kAuto:
      return "auto";
    case DiskMode::kFixed:
      return "fixed";
  }
  return "";
}

Json TextOrNull(std::string_view text) { return text.empty() ? Json() : Json(text); }

Json Configured(const DiskConfiguration& disk) {
  const bool has_budget = disk.options.mode == DiskMode::kFixed;
  return {{"mode", ModeWord(disk.options.mode)},
          {"directory", TextOrNull(disk.options.directory)},
          {"budget_bytes", has_budget ? Json(disk.options.budget_bytes) : Json()},
          {"minimum_free_bytes", disk.options.minimum_free_bytes},
          {"sources",
           {{"mode", ToString(disk.mode_source)},
            {"directory", ToString(disk.directory_source)},
            {"budget", ToString(disk.budget_source)},
            {"minimum_free", ToString(disk.minimum_free_source)}}}};
}

// The cache says "word: what happened"; programs compare the word, people read the rest.
std::pair<std::string_view, std::string_view> SplitReason(std::string_view reason) {
  const std::size_t end = reason.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  if (end == std::string_view::npos) {
    return {reason, {}};
  }
  if (!reason.substr(end).starts_with(": ")) {
    return {{}, reason};
  }
  return {reason.substr(0, end), reason.substr(end + 2)};
}

Json Effective(const CacheStatus& cache) {
  const auto [reason, detail] = SplitReason(cache.disk_reason);
  return {{"state", ToString(cache.disk_state)},
          {"reason", TextOrNull(reason)},
          {"detail", TextOrNull(detail)},
          {"directory", TextOrNull(cache.directory)},
          {"budget_bytes", cache.disk.budget_bytes},
          {"minimum_free_bytes", cache.disk.minimum_free_bytes}};
}

Json Usage(const DiskUsage& disk) {
  return {{"budget_bytes", disk.budget_bytes},
          {"used_bytes", disk.used_bytes},
          {"payload_bytes", disk.payload_bytes},
          {"reserved_inflight_bytes", disk.reserved_inflight_bytes},
          {"filesystem_available_bytes", disk.filesystem_available_bytes},
          {"minimum_free_bytes", disk.minimum_free_bytes},
          {"quarantined_bytes", disk.quarantined_bytes},
          {"manifests", disk.manifests},
          {"unique_segments", disk.unique_segments},
          {"evicted_manifests", disk.evicted_manifests},
          {"quarantined_objects", disk.quarantined_objects}};
}

Json Ram(const RamUsage& ram) {
  return {{"budget_bytes", ram.budget_bytes},
          {"enabled", ram.budget_bytes > 0},
          {"resident_bytes", ram.resident_bytes},
          {"in_flight_bytes", ram.in_flight_bytes},
          {"logical_bytes", ram.logical_bytes},
          {"entries", ram.entries},
          {"segments", ram.segments},
          {"buffer_bytes", ram.buffer_bytes},
          {"promotions", ram.promotions},
          {"promotions_refused", ram.promotions_refused},
          {"hits", ram.hits},
          {"misses", ram.misses},
          {"inserts", ram.inserts},
          {"evictions", ram.evictions},
          {"admission_refusals", ram.admission_refusals},
          {"locked", ram.locked},
          {"lock_error", TextOrNull(ram.lock_error)}};
}

Json Activity(const CacheActivity& activity) {
  const bool refused = activity.last_refusal != RefusalReason::kNone;
  return {{"hits", activity.hits},
          {"misses", activity.misses},
          {"fills", activity.fills},
          {"writes", activity.writes},
          {"evictions", activity.evictions},
          {"corrupt_entries", activity.corrupt_entries},
          {"bytes_read", activity.bytes_read},
          {"bytes_written", activity.bytes_written},
          {"records_dropped", activity.records_dropped},
          {"geometry_rejected", activity.geometry_rejected},
          {"write_queue_bytes", activity.write_queue_bytes},
          {"last_refusal", refused ? Json(ToString(activity.last_refusal)) : Json()},
          {"last_error", TextOrNull(activity.last_error)}};
}

Json Repaired(const Reconciliation& found) {
  return {{"removed_temporary_files", found.removed_temporary_files},
          {"quarantined_manifests", found.quarantined_manifests},
          {"removed_prefix_links", found.removed_prefix_links},
          {"removed_orphan_bytes", found.removed_orphan_bytes}};
}

Json Inventory(const std::vector<InventoryEntry>& entries) {
  Json out = Json::array();
  for (const InventoryEntry& entry : entries) {
    out.push_back({{"model_identity", entry.model.ToHex()},
                   {"state_identity", entry.state.ToHex()},
                   {"model_name", entry.model_name},
                   {"namespace", entry.name_space},
                   {"payload_kind", entry.payload_kind},
                   {"token_count", entry.token_count},
                   {"total_bytes", entry.total_bytes}});
  }
  return out;
}

Json Model(const ModelInfo& model) {
  return {{"name", model.name},
          {"path", model.path},
          {"architecture", model.architecture},
          {"family", model.family},
          {"cache_reason", TextOrNull(model.cache_reason)},
          {"cache_type_k", model.cache_type_k},
          {"cache_type_v", model.cache_type_v},
          {"cache_type_source", model.cache_type_source},
          {"flash_attention", model.flash_attention},
          {"context_tokens", model.context_tokens},
          {"train_context_tokens", model.train_context_tokens},
          {"parameter_count", model.parameter_count},
          {"weight_bytes", model.weight_bytes},
          {"model_identity", model.identity_known ? Json(model.model_identity.ToHex()) : Json()},
          {"state_identity", model.identity_known ? Json(model.state_identity.ToHex()) : Json()}};
}

Json EngineCounters(const EngineStatus& engine) {
  return {{"lanes", engine.lanes},
          {"lanes_busy", engine.lanes_busy},
          {"queued", engine.queued},
          {"resident_sequences", engine.resident_sequences},
          {"resident_tokens", engine.resident_tokens},
          {"cells", engine.cells},
          {"cells_used", engine.cells_used},
          {"requests_total", engine.requests_total},
          {"cancelled_total", engine.cancelled_total},
          {"prompt_tokens_total", engine.prompt_tokens_total},
          {"computed_tokens_total", engine.computed_tokens_total},
          {"cached_l1_tokens_total", engine.cached_l1_tokens_total},
          {"cached_l2_tokens_total", engine.cached_l2_tokens_total},
          {"cached_l3_tokens_total", engine.cached_l3_tokens_total},
          {"generated_tokens_total", engine.generated_tokens_total},
          {"restores_total", engine.restores_total},
          {"restores_failed_total", engine.restores_failed_total},
          {"declined_because_recompute_faster", engine.declined_because_recompute_faster},
          {"idle_sequences_moved_total", engine.idle_sequences_moved_total},
          {"export_bytes_total", engine.export_bytes_total},
          {"import_bytes_total", engine.import_bytes_total}};
}

Json EngineSection(const StatusSnapshot& snapshot) {
  Json out = {{"state", snapshot.engine ? "ready" : "loading"}};
  if (snapshot.model) {
    out["model"] = Model(*snapshot.model);
  }
  if (snapshot.engine) {
    out.update(EngineCounters(*snapshot.engine));
  }
  return out;
}

Json ToJson(const StatusSnapshot& snapshot) {
  const CacheStatus& cache = snapshot.cache;
  return {{"version", kStatusVersion},
          {"format_version", kStoreFormatVersion},
          {"configured", Configured(snapshot.configured)},
          {"effective", Effective(cache)},
          {"usage", Usage(cache.disk)},
          {"ram", Ram(cache.ram)},
          {"activity", Activity(cache.activity)},
          {"reconciliation", Repaired(cache.reconciliation)},
          {"inventory", Inventory(cache.inventory)},
          {"inventory_omitted", cache.inventory_omitted},
          {"engine", EngineSection(snapshot)}};
}

// Names come from model files and paths, which need not be UTF-8.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string StatusJson(const StatusSnapshot& snapshot) { return Dump(ToJson(snapshot)); }

std::string MutationJson(std::uint64_t freed_bytes, const StatusSnapshot& snapshot) {
  return Dump({{"freed_bytes", freed_bytes}, {"status", ToJson(snapshot)}});
}

}  // namespace skippy
