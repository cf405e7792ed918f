#include "control/option_table.h"

#include <algorithm>
#include <limits>

namespace skippy {
namespace {

constexpr std::int64_t kLargestTokenCount = std::numeric_limits<TokenCount>::max();
constexpr std::string_view kCacheTypes = "auto|f32|f16|bf16|q8_0|q4_0|q4_1|iq4_nl|q5_0|q5_1";
// 256 sequences are the most that llama.cpp takes; some are scratch or keep idle state.
constexpr std::int64_t kLargestParallel = 250;

int Int(const OptionValue& value) { return static_cast<int>(value.number); }

// Splits at commas and drops empty parts.
template <class Use>
void ForEachPart(const std::string& text, Use use) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) {
      use(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
}

void AddLoras(const OptionValue& value, ServeConfiguration* out) {
  ForEachPart(value.text,
              [&](std::string path) { out->engine.loras.emplace_back(std::move(path), 1.0F); });
}

void AddScaledLoras(const OptionValue& value, ServeConfiguration* out) {
  ForEachPart(value.text, [&](const std::string& part) {
    const std::size_t colon = part.rfind(':');
    out->engine.loras.emplace_back(part.substr(0, colon), std::stof(part.substr(colon + 1)));
  });
}

void AddApiKeys(const OptionValue& value, ServeConfiguration* out) {
  ForEachPart(value.text, [&](std::string key) { out->listen.api_keys.push_back(std::move(key)); });
}

using Value = const OptionValue&;
using Out = ServeConfiguration*;

constexpr OptionSpec kTable[] = {
    {.name = "model",
     .long_flag = "--model",
     .other_flags = "-m",
     .value_name = "FILE",
     .toml_key = "model.path",
     .default_text = "none; required",
     .help = "GGUF model to serve (the first shard of a split model)",
     .set = [](Value v, Out out) { out->engine.model_path = v.text; }},
    {.name = "alias",
     .long_flag = "--alias",
     .other_flags = "-a",
     .value_name = "NAME",
     .toml_key = "model.alias",
     .default_text = "the model's own name",
     .help = "model name shown to clients; never part of the cache's identity",
     .set = [](Value v, Out out) { out->engine.model_alias = v.text; }},
    {.name = "lora",
     .long_flag = "--lora",
     .value_name = "FILE,...",
     .toml_key = "model.lora",
     .type = OptionType::kList,
     .default_text = "none",
     .help = "LoRA adapters at scale 1; part of the cache's identity",
     .set = AddLoras},
    {.name = "lora_scaled",
     .long_flag = "--lora-scaled",
     .value_name = "FILE:SCALE,...",
     .toml_key = "model.lora_scaled",
     .type = OptionType::kScaledList,
     .default_text = "none",
     .help = "LoRA adapters with scales; part of the cache's identity",
     .set = AddScaledLoras},
    {.name = "ctx_size",
     .long_flag = "--ctx-size",
     .other_flags = "-c",
     .value_name = "N",
     .toml_key = "defaults.model_fit.ctx_size",
     .type = OptionType::kNumber,
     .unit = "tokens",
     .default_text = "0 = the model's own, at most 8192",
     .low = 0,
     .high = kLargestTokenCount,
     .help = "context size, shared by all lanes",
     .set = [](Value v, Out out) { out->engine.context_tokens = Int(v); }},
    {.name = "batch_size",
     .long_flag = "--batch-size",
     .other_flags = "-b",
     .value_name = "N",
     .toml_key = "defaults.model_fit.batch",
     .type = OptionType::kNumber,
     .unit = "tokens",
     .default_text = "2048",
     .low = 1,
     .high = 1 << 20,
     .help = "most tokens given to the model in one call",
     .set = [](Value v, Out out) { out->engine.batch_tokens = Int(v); }},
    {.name = "ubatch_size",
     .long_flag = "--ubatch-size",
     .other_flags = "-ub",
     .value_name = "N",
     .toml_key = "defaults.model_fit.ubatch",
     .type = OptionType::kNumber,
     .unit = "tokens",
     .default_text = "512",
     .low = 1,
     .high = 1 << 20,
     .help = "most tokens computed at once; not more than the batch",
     .set = [](Value v, Out out) { out->engine.ubatch_tokens = Int(v); }},
    {.name = "threads",
     .long_flag = "--threads",
     .other_flags = "-t",
     .value_name = "N",
     .toml_key = "engine.threads",
     .type = OptionType::kNumber,
     .unit = "threads",
     .default_text = "-1 = physical cores",
     .low = -1,
     .high = 1024,
     .help = "CPU threads for generation; 0 and -1 choose",
     .set = [](Value v, Out out) { out->engine.threads = std::max(0, Int(v)); }},
    {.name = "threads_batch",
     .long_flag = "--threads-batch",
     .other_flags = "-tb",
     .value_name = "N",
     .toml_key = "engine.threads_batch",
     .type = OptionType::kNumber,
     .unit = "threads",
     .default_text = "-1 = same as threads",
     .low = -1,
     .high = 1024,
     .help = "CPU threads for prompts; 0 and -1 choose",
     .set = [](Value v, Out out) { out->engine.threads_batch = std::max(0, Int(v)); }},
    {.name = "parallel",
     .long_flag = "--parallel",
     .other_flags = "-np",
     .value_name = "N",
     .toml_key = "engine.parallel",
     .type = OptionType::kNumber,
     .unit = "requests",
     .default_text = "-1 = 4",
     .low = -1,
     .high = kLargestParallel,
     .help = "requests decoded together (lanes); 0 and -1 choose",
     .set = [](Value v, Out out) { out->engine.parallel = std::max(0, Int(v)); }},
    {.name = "gpu_layers",
     .long_flag = "--gpu-layers",
     .other_flags = "-ngl --n-gpu-layers",
     .value_name = "N",
     .toml_key = "engine.gpu_layers",
     .type = OptionType::kGpuLayers,
     .unit = "layers",
     .default_text = "auto",
     .low = -1,
     .high = 1 << 16,
     .help = "layers kept on the accelerator; auto and all mean as many as fit",
     .set = [](Value v, Out out) { out->engine.gpu_layers = Int(v); }},
    {.name = "flash_attention",
     .long_flag = "--flash-attn",
     .other_flags = "-fa",
     .value_name = "on|off|auto",
     .toml_key = "defaults.model_fit.flash_attention",
     .type = OptionType::kFlashChoice,
     .default_text = "auto",
     .help = "flash attention",
     .set = [](Value v, Out out) { out->engine.flash_attention = v.text; }},
    {.name = "cache_type_k",
     .long_flag = "--cache-type-k",
     .other_flags = "-ctk",
     .value_name = "TYPE",
     .toml_key = "defaults.model_fit.cache_type_k",
     .type = OptionType::kChoice,
     .default_text = "auto",
     .choices = kCacheTypes,
     .help = "data type of K; auto chooses by model size and device",
     .set = [](Value v, Out out) { out->engine.cache_type_k = v.text; }},
    {.name = "cache_type_v",
     .long_flag = "--cache-type-v",
     .other_flags = "-ctv",
     .value_name = "TYPE",
     .toml_key = "defaults.model_fit.cache_type_v",
     .type = OptionType::kChoice,
     .default_text = "auto",
     .choices = kCacheTypes,
     .help = "data type of V; a quantised V needs flash attention",
     .set = [](Value v, Out out) { out->engine.cache_type_v = v.text; }},
    {.name = "host",
     .long_flag = "--host",
     .value_name = "ADDRESS",
     .toml_key = "server.host",
     .default_text = "127.0.0.1",
     .help = "address to serve on",
     .set = [](Value v, Out out) { out->listen.host = v.text; }},
    {.name = "port",
     .long_flag = "--port",
     .value_name = "PORT",
     .toml_key = "server.port",
     .type = OptionType::kNumber,
     .default_text = "9337",
     .low = 0,
     .high = 65535,
     .help = "port to serve on; 0 picks a free one",
     .set = [](Value v, Out out) { out->listen.port = Int(v); }},
    {.name = "api_key",
     .long_flag = "--api-key",
     .value_name = "KEY,...",
     .toml_key = "server.api_key",
     .environment = "SKIPPY_API_KEY",
     .type = OptionType::kList,
     .default_text = "none",
     .help = "keys that clients must present",
     .set = AddApiKeys},
    {.name = "kv_cache_disk",
     .long_flag = "--kv-cache-disk",
     .value_name = "off|auto|SIZE",
     .toml_key = "runtime.kv_cache.disk.mode",
     .environment = "SKIPPY_KV_CACHE_DISK",
     .type = OptionType::kDiskMode,
     .default_text = "off",
     .help = "disk tier: off, a budget chosen from free space, or a fixed budget"},
    {.name = "kv_cache_disk_budget",
     .toml_key = "runtime.kv_cache.disk.budget_mib",
     .type = OptionType::kByteSize,
     .default_text = "none; required with mode fixed",
     .low = kMiB,
     .apply = ApplyMode::kLive,
     .help = "hard limit of the whole cache directory, physical bytes; only with mode fixed"},
    {.name = "kv_cache_disk_dir",
     .long_flag = "--kv-cache-disk-dir",
     .value_name = "DIR",
     .toml_key = "runtime.kv_cache.disk.directory",
     .environment = "SKIPPY_KV_CACHE_DISK_DIR",
     .type = OptionType::kAbsolutePath,
     .default_text = "$SKIPPY_HOME/kv-cache, else ~/.skippy/kv-cache",
     .help = "cache directory on a local file system; created when missing"},
    {.name = "kv_cache_min_free",
     .long_flag = "--kv-cache-min-free",
     .value_name = "SIZE",
     .toml_key = "runtime.kv_cache.disk.minimum_free_mib",
     .environment = "SKIPPY_KV_CACHE_MIN_FREE",
     .type = OptionType::kByteSize,
     .default_text = "16GiB",
     .low = kLowestMinimumFreeBytes,
     .apply = ApplyMode::kLive,
     .help = "free space of the file system that the cache never takes",
     .set = [](Value v, Out out) { out->disk.options.minimum_free_bytes = v.byte_count; }},
    {.name = "management_host",
     .long_flag = "--management-host",
     .value_name = "ADDRESS",
     .toml_key = "management.host",
     .type = OptionType::kLoopbackHost,
     .default_text = "127.0.0.1",
     .help = "loopback address of the management API",
     .set = [](Value v, Out out) { out->management.host = v.text; }},
    {.name = "management_port",
     .long_flag = "--management-port",
     .value_name = "PORT|off",
     .toml_key = "management.port",
     .type = OptionType::kPortOrOff,
     .default_text = "3131",
     .help = "port of the management API; 0 picks a free one, off disables it",
     .set =
         [](Value v, Out out) {
           out->management.port = v.text == "off" ? std::nullopt : std::optional<int>(Int(v));
         }},
    {.name = "log_level",
     .long_flag = "--log-level",
     .value_name = "LEVEL",
     .toml_key = "log.level",
     .type = OptionType::kChoice,
     .default_text = "info",
     .choices = "trace|debug|info|warning|error|off",
     .help = "least severe messages that are logged; trace shows a hash of every cached row",
     .set = [](Value v, Out out) { out->log_level = v.text; }},
    {.name = "config",
     .long_flag = "--config",
     .value_name = "FILE",
     .default_text = "none",
     .help = "configuration file in TOML with the keys of this page"},
};

}  // namespace

std::span<const OptionSpec> OptionTable() { return kTable; }

const OptionSpec* FindOption(std::string_view name) {
  const auto found = std::find_if(std::begin(kTable), std::end(kTable),
                                  [&](const OptionSpec& spec) { return spec.name == name; });
  return found == std::end(kTable) ? nullptr : found;
}

bool IsRepeatable(const OptionSpec& spec) {
  return spec.type == OptionType::kList || spec.type == OptionType::kScaledList;
}

bool IsAbsolutePath(std::string_view path) { return path.starts_with('/'); }

}  // namespace skippy
