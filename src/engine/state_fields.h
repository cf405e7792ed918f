// Collects what decides the bytes of exported state (docs: state identity) from the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/family.h"
#include "engine/gguf_files.h"
#include "index/identity.h"
#include "skippy/result.h"

struct llama_context;
struct llama_context_params;
struct llama_model;

namespace skippy {

// Version of what a segment's bytes are; raised whenever the adapter exports differently.
inline constexpr std::uint32_t kStateFormatVersion = 1;
inline constexpr std::string_view kEngineCommit = "llama.cpp v0.4.0";

// Learns how llama.cpp resolved "flash attention: auto", which it only logs: put one around
// llama_init_from_model. Takes the log callback over and passes every line on. One at a time.
class FlashAttentionWatch {
 public:
  FlashAttentionWatch();
  ~FlashAttentionWatch();
  FlashAttentionWatch(const FlashAttentionWatch&) = delete;
  FlashAttentionWatch& operator=(const FlashAttentionWatch&) = delete;

  // nullopt: nothing was resolved (on or off was asked for).
  std::optional<bool> resolved() const;

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
};

struct StateFieldsInput {
  const llama_model* model = nullptr;
  const llama_context* context = nullptr;
  const llama_context_params* params = nullptr;  // as given to llama_init_from_model
  std::optional<bool> flash_attention_resolved;  // FlashAttentionWatch::resolved()
  Family family = Family::kNone;
  RopeTensors rope_tensors;  // ReadRopeTensors
  std::vector<KvOverride> kv_overrides;
};

// kUnsupported for a K/V type that has no place in the identity, kInternal when "auto" was asked
// for and its outcome is not known. Values that neither the caller nor the model's metadata gives
// stay absent.
Result<StateFields> MakeStateFields(const StateFieldsInput& input);

// "f16", "q8_0", ... as on the command line; nullopt: not a K/V cache type.
std::optional<KvType> ParseKvType(std::string_view text);
std::string_view ToString(KvType type);

}  // namespace skippy
