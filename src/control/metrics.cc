// The same snapshot as families of prometheus-cpp, made anew for each scrape: the counters live in
// the cache and the engine, so no registry holds a second copy.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <string>
#include <utility>
#include <vector>

#include "control/status_json.h"

namespace skippy {
namespace {

using prometheus::MetricType;

class Families {
 public:
  template <class Number>
  void Counter(std::string name, std::string help, Number value) {
    prometheus::ClientMetric metric;
    metric.counter.value = static_cast<double>(value);
    Add(std::move(name), std::move(help), MetricType::Counter, {std::move(metric)});
  }
  template <class Number>
  void Gauge(std::string name, std::string help, Number value) {
    prometheus::ClientMetric metric;
    metric.gauge.value = static_cast<double>(value);
    Add(std::move(name), std::move(help), MetricType::Gauge, {std::move(metric)});
  }
  void Add(std::string name, std::string help, MetricType type,
           std::vector<prometheus::ClientMetric> metrics) {
    all_.push_back({"skippy_" + std::move(name), std::move(help), type, std::move(metrics)});
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(all_); }

 private:
  std::vector<prometheus::MetricFamily> all_;
};

prometheus::ClientMetric Labelled(const char* label, std::string_view value, double number) {
  prometheus::ClientMetric metric;
  metric.label.push_back({label, std::string(value)});
  metric.counter.value = number;
  metric.gauge.value = number;
  return metric;
}

void AddState(const CacheStatus& cache, Families* out) {
  std::vector<prometheus::ClientMetric> states;
  for (const TierState state :
       {TierState::kOff, TierState::kOpening, TierState::kActive, TierState::kReadOnlyLowSpace,
        TierState::kPruningToBudget, TierState::kDegraded}) {
    states.push_back(Labelled("state", ToString(state), state == cache.disk_state ? 1 : 0));
  }
  out->Add("disk_state", "1 for the state the disk tier is in", MetricType::Gauge,
           std::move(states));
}

void AddDisk(const DiskUsage& disk, Families* out) {
  out->Gauge("disk_budget_bytes", "Hard limit of the cache directory", disk.budget_bytes);
  out->Gauge("disk_used_bytes", "Physical bytes of the cache directory", disk.used_bytes);
  out->Gauge("disk_payload_bytes", "Live segment bytes", disk.payload_bytes);
  out->Gauge("disk_reserved_inflight_bytes", "Reserved for writes under way",
             disk.reserved_inflight_bytes);
  out->Gauge("disk_filesystem_available_bytes", "Free space of the file system",
             disk.filesystem_available_bytes);
  out->Gauge("disk_minimum_free_bytes", "Free space that is never taken", disk.minimum_free_bytes);
  out->Gauge("disk_quarantined_bytes", "Bytes set aside as damaged", disk.quarantined_bytes);
  out->Gauge("disk_manifests", "Recorded prefixes", disk.manifests);
  out->Gauge("disk_segments", "Distinct segments", disk.unique_segments);
  out->Counter("disk_evicted_manifests_total", "Recorded prefixes evicted", disk.evicted_manifests);
  out->Counter("disk_quarantined_objects_total", "Objects set aside as damaged",
               disk.quarantined_objects);
}

void AddRam(const RamUsage& ram, Families* out) {
  out->Gauge("ram_budget_bytes", "Limit of the RAM tier", ram.budget_bytes);
  out->Gauge("ram_resident_bytes", "Bytes the RAM tier holds", ram.resident_bytes);
  out->Gauge("ram_in_flight_bytes", "Of its budget: being recorded, or evicted but still read",
             ram.in_flight_bytes);
  out->Gauge("ram_buffer_bytes", "Beside its budget: read-ahead and what waits for the disk alone",
             ram.buffer_bytes);
  out->Gauge("ram_logical_bytes", "Bytes of its prefixes, shared segments counted each time",
             ram.logical_bytes);
  out->Gauge("ram_entries", "Prefixes whose end is in RAM", ram.entries);
  out->Gauge("ram_segments", "Segments of the RAM tier", ram.segments);
  out->Counter("ram_hits_total", "Lookups that found bytes in RAM", ram.hits);
  out->Counter("ram_misses_total", "Lookups that found none there", ram.misses);
  out->Counter("ram_inserts_total", "Segments admitted", ram.inserts);
  out->Counter("ram_evictions_total", "Segments evicted", ram.evictions);
  out->Counter("ram_admission_refusals_total", "Segments refused", ram.admission_refusals);
  out->Counter("ram_promotions_total", "Segments read from disk that stayed", ram.promotions);
  out->Counter("ram_promotions_refused_total", "Segments read from disk that found no room",
               ram.promotions_refused);
}

void AddActivity(const CacheActivity& activity, Families* out) {
  out->Counter("cache_hits_total", "Lookups that found a restorable prefix", activity.hits);
  out->Counter("cache_misses_total", "Lookups that found none", activity.misses);
  out->Counter("cache_fills_total", "Restores that read from disk", activity.fills);
  out->Counter("cache_writes_total", "Prefixes made durable", activity.writes);
  out->Counter("cache_evictions_total", "Prefixes evicted", activity.evictions);
  out->Counter("cache_corrupt_entries_total", "Segments that failed verification",
               activity.corrupt_entries);
  out->Counter("cache_read_bytes_total", "Bytes read from disk", activity.bytes_read);
  out->Counter("cache_written_bytes_total", "Payload bytes written", activity.bytes_written);
  out->Counter("cache_records_dropped_total", "Records refused before a write",
               activity.records_dropped);
  out->Counter("cache_geometry_rejected_total", "States that did not fit their declared rows",
               activity.geometry_rejected);
  out->Gauge("cache_write_queue_bytes", "Bytes waiting to be written", activity.write_queue_bytes);
}

void AddEngine(const EngineStatus& engine, Families* out) {
  out->Gauge("engine_lanes", "Requests decoded together at most", engine.lanes);
  out->Gauge("engine_lanes_busy", "Requests being decoded", engine.lanes_busy);
  out->Gauge("engine_queued", "Requests waiting for a lane", engine.queued);
  out->Gauge("engine_resident_sequences", "Idle sequences kept", engine.resident_sequences);
  out->Gauge("engine_resident_tokens", "Tokens of idle sequences", engine.resident_tokens);
  out->Gauge("engine_cells", "Cells of the context", engine.cells);
  out->Gauge("engine_cells_used", "Cells in use", engine.cells_used);
  out->Counter("engine_requests_total", "Requests accepted", engine.requests_total);
  out->Counter("engine_cancelled_total", "Requests cancelled", engine.cancelled_total);
  out->Counter("engine_prompt_tokens_total", "Prompt tokens", engine.prompt_tokens_total);
  out->Counter("engine_computed_tokens_total", "Prompt tokens computed",
               engine.computed_tokens_total);
  const auto tokens = [](std::uint64_t count) { return static_cast<double>(count); };
  out->Add("engine_cached_tokens_total", "Prompt tokens taken from a tier", MetricType::Counter,
           {Labelled("tier", "l1", tokens(engine.cached_l1_tokens_total)),
            Labelled("tier", "l2", tokens(engine.cached_l2_tokens_total)),
            Labelled("tier", "l3", tokens(engine.cached_l3_tokens_total))});
  out->Counter("engine_generated_tokens_total", "Tokens generated", engine.generated_tokens_total);
  out->Counter("engine_restores_total", "Restores started", engine.restores_total);
  out->Counter("engine_restores_failed_total", "Restores that ended early",
               engine.restores_failed_total);
  out->Counter("engine_declined_because_recompute_faster_total",
               "Restores not started because computing is faster",
               engine.declined_because_recompute_faster);
  out->Counter("engine_idle_sequences_moved_total",
               "Idle sequences that left the engine because their cells cost more than a restore",
               engine.idle_sequences_moved_total);
  out->Counter("engine_export_bytes_total", "State bytes exported", engine.export_bytes_total);
  out->Counter("engine_import_bytes_total", "State bytes imported", engine.import_bytes_total);
}

}  // namespace

std::string MetricsText(const StatusSnapshot& snapshot) {
  Families out;
  AddState(snapshot.cache, &out);
  AddDisk(snapshot.cache.disk, &out);
  AddRam(snapshot.cache.ram, &out);
  AddActivity(snapshot.cache.activity, &out);
  out.Gauge("engine_ready", "1 when the model is loaded", snapshot.engine ? 1 : 0);
  if (snapshot.engine) {
    AddEngine(*snapshot.engine, &out);
  }
  return out.Text();
}

}  // namespace skippy
