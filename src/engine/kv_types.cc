#include "engine/kv_types.h"

#include <llama.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/state_fields.h"
#include "skippy/options.h"

namespace skippy {
namespace {

// On accelerators K and V are Q8_0 below this size of the weights and Q4_0 from it on.
constexpr std::uint64_t kLargeWeightsBytes = 50 * kGiB;
// Elements that every quantised type puts into one block.
constexpr int kBlockWidth = 32;

bool IsQuantized(KvType type) {
  return type != KvType::kF32 && type != KvType::kF16 && type != KvType::kBf16;
}

bool IsOff(const std::string& flash) { return flash == "off" || flash == "0"; }

// Why a head of one of these widths cannot be kept in blocks; empty: it can.
std::string WidthProblem(const std::vector<int>& widths, const char* what) {
  const auto odd = std::find_if(widths.begin(), widths.end(),
                                [](int width) { return width % kBlockWidth != 0; });
  if (odd == widths.end()) return "";
  return std::string(what) + " heads of this model are " + std::to_string(*odd) +
         " wide, not a multiple of " + std::to_string(kBlockWidth);
}

std::string KProblem(KvType type, const KvTypeFacts& facts) {
  return IsQuantized(type) ? WidthProblem(facts.key_widths, "K") : "";
}

std::string VProblem(KvType type, const KvTypeRequest& request, const KvTypeFacts& facts) {
  if (!IsQuantized(type)) return "";
  if (IsOff(request.flash_attention)) {
    return "a quantised V needs flash attention, which --flash-attn turns off";
  }
  if (!facts.can_use_flash) {
    return "a quantised V needs flash attention, which this architecture cannot use";
  }
  return WidthProblem(facts.value_widths, "V");
}

struct Automatic {
  KvType type = KvType::kF16;
  const char* source = "backend";
};

Automatic ChooseAutomatic(const KvTypeFacts& facts) {
  if (facts.family_default) return {*facts.family_default, "family"};
  if (!facts.on_accelerator) return {};
  return {facts.weight_bytes < kLargeWeightsBytes ? KvType::kQ8_0 : KvType::kQ4_0, "default"};
}

bool IsAuto(const std::string& name) { return name == "auto" || name.empty(); }

Result<KvType> ParseNamed(const char* flag, const std::string& name) {
  const std::optional<KvType> type = ParseKvType(name);
  if (!type) {
    return MakeError(ErrorCode::kInvalidArgument,
                     std::string(flag) + ": cache type \"" + name + "\" is not known");
  }
  return *type;
}

Error Impossible(const char* flag, KvType type, const std::string& problem) {
  return MakeError(
      ErrorCode::kInvalidArgument,
      std::string(flag) + " " + std::string(ToString(type)) + " is not possible: " + problem);
}

int MetaInt(const llama_model* model, const std::string& key) {
  char text[32];
  const bool found = llama_model_meta_val_str(model, key.c_str(), text, sizeof(text)) > 0;
  return found ? static_cast<int>(std::strtol(text, nullptr, 10)) : 0;
}

}  // namespace

Result<KvTypeChoice> ResolveKvTypes(const KvTypeRequest& request, const KvTypeFacts& facts) {
  constexpr const char* kFlagK = "--cache-type-k";
  constexpr const char* kFlagV = "--cache-type-v";
  const Automatic automatic = ChooseAutomatic(facts);
  const bool auto_k = IsAuto(request.type_k);
  const bool auto_v = IsAuto(request.type_v);
  KvTypeChoice choice;
  choice.k = choice.v = automatic.type;
  choice.source = auto_k && auto_v ? automatic.source : request.source;
  if (!auto_k) {
    SKIPPY_ASSIGN_OR_RETURN(choice.k, ParseNamed(kFlagK, request.type_k));
  }
  if (!auto_v) {
    SKIPPY_ASSIGN_OR_RETURN(choice.v, ParseNamed(kFlagV, request.type_v));
  }
  const std::string k_problem = KProblem(choice.k, facts);
  const std::string v_problem = VProblem(choice.v, request, facts);
  if (!auto_k && !k_problem.empty()) return Impossible(kFlagK, choice.k, k_problem);
  if (!auto_v && !v_problem.empty()) return Impossible(kFlagV, choice.v, v_problem);
  // What was chosen here falls back as a pair, as it was chosen as one.
  if ((auto_k || auto_v) && !(k_problem.empty() && v_problem.empty())) {
    choice.reason = k_problem.empty() ? v_problem : k_problem;
    if (auto_k) choice.k = KvType::kF16;
    if (auto_v) choice.v = KvType::kF16;
    if (auto_k && auto_v) choice.source = "metadata";
  }
  choice.flash = IsQuantized(choice.v);
  return choice;
}

KvTypeFacts ReadKvTypeFacts(const llama_model* model) {
  KvTypeFacts facts;
  facts.weight_bytes = llama_model_size(model);
  char architecture[64] = "";
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof(architecture));
  facts.can_use_flash = std::string_view(architecture) != "grok";  // the library turns it off
  const std::string prefix = std::string(architecture) + ".attention.";
  const int heads = llama_model_n_head(model);
  const int usual = heads > 0 ? llama_model_n_embd(model) / heads : 0;
  const auto widths = [&](const char* key) {
    std::vector<int> found;
    const int full = MetaInt(model, prefix + key);
    const int windowed = MetaInt(model, prefix + key + "_swa");
    for (const int width : {full > 0 ? full : usual, windowed}) {
      if (width > 0) found.push_back(width);
    }
    return found;
  };
  facts.key_widths = widths("key_length");
  facts.value_widths = widths("value_length");
  return facts;
}

}  // namespace skippy
