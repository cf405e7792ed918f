// Which data types K and V are kept in. One decision, by rules, from what the metadata says: for
// planning as for loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "index/identity.h"
#include "skippy/result.h"

struct llama_model;

namespace skippy {

// "auto" or a name; "auto" or a value for flash attention ("on", "off", "1", "0").
struct KvTypeRequest {
  std::string type_k = "auto";
  std::string type_v = "auto";
  std::string flash_attention = "auto";
  std::string source = "default";  // of the two types, where one is named
};

struct KvTypeFacts {
  std::uint64_t weight_bytes = 0;
  bool on_accelerator = false;    // K and V lie in a device's memory
  std::vector<int> key_widths;    // of one head, each that occurs; empty: not known
  std::vector<int> value_widths;  // for absorbed MLA the latent widths
  bool can_use_flash = true;      // the architecture can
  std::optional<KvType> family_default;
};

struct KvTypeChoice {
  KvType k = KvType::kF16;
  KvType v = KvType::kF16;
  // "cli", "config", ...: named there; "family": the family's default; "default": by the size of
  // the weights; "backend": F16 on the CPU, where a quantised cache is several times slower to
  // attend to; "metadata": F16 because the chosen type cannot load.
  std::string source;
  std::string reason;  // of "metadata", for people
  bool flash = false;  // flash attention must be on: V is quantised
};

// kInvalidArgument: a named type is not known or cannot work; the text names flag and cause.
Result<KvTypeChoice> ResolveKvTypes(const KvTypeRequest& request, const KvTypeFacts& facts);

// All but on_accelerator.
KvTypeFacts ReadKvTypeFacts(const llama_model* model);

}  // namespace skippy
