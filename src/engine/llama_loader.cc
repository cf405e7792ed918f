#include "engine/llama_loader.h"

#include <common.h>
#include <llama.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "engine/aligned_arrays.h"
#include "engine/gguf_files.h"
#include "engine/kv_types.h"
#include "engine/state_fields.h"

namespace skippy {
namespace {

constexpr int kDefaultLanes = 4;
constexpr int kSequencesMax = 256;  // the library's own limit
constexpr TokenCount kDefaultContextTokens = 8192;

// llama.cpp says why something failed only in its log.
struct LastError {
  std::string text;
};

void OnLlamaLog(ggml_log_level level, const char* text, void* last_error) {
  std::string line(text);
  while (!line.empty() && (line.back() == '\n' || line.back() == '.')) {
    line.pop_back();
  }
  if (line.empty()) {
    return;
  }
  LogDebug("llama.cpp: {}", line);
  if (level == GGML_LOG_LEVEL_ERROR && last_error != nullptr) {
    static_cast<LastError*>(last_error)->text = line;
  }
}

// Sends llama.cpp's log to ours; while it lives, remembers the last error.
class LogScope {
 public:
  LogScope() { llama_log_set(OnLlamaLog, &last_error_); }
  ~LogScope() { llama_log_set(OnLlamaLog, nullptr); }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  std::string Reason() const {
    return last_error_.text.empty() ? "no reason given" : last_error_.text;
  }

 private:
  LastError last_error_;
};

bool OnProgress(float progress, void* report) {
  (*static_cast<const std::function<void(float)>*>(report))(progress);
  return true;
}

std::string MetaValue(const llama_model* model, const char* key) {
  char text[256];
  const std::int32_t count = llama_model_meta_val_str(model, key, text, sizeof(text));
  return count > 0 ? std::string(text) : std::string();
}

bool HasAccelerator(const EngineOptions& options) {
  for (std::size_t i = 0; options.gpu_layers != 0 && i < ggml_backend_dev_count(); ++i) {
    const auto type = ggml_backend_dev_type(ggml_backend_dev_get(i));
    if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
      return true;
    }
  }
  return false;
}

int DefaultThreads() {
  const int physical = common_cpu_get_num_physical_cores();
  const int logical = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, logical > 0 ? std::min(physical, logical) : physical);
}

ggml_type ToGgml(KvType type) {
  switch (type) {
    case KvType::kF32:
      return GGML_TYPE_F32;
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kBf16:
      return GGML_TYPE_BF16;
    case KvType::kQ8_0:
      return GGML_TYPE_Q8_0;
    case KvType::kQ4_0:
      return GGML_TYPE_Q4_0;
    case KvType::kQ4_1:
      return GGML_TYPE_Q4_1;
    case KvType::kIq4Nl:
      return GGML_TYPE_IQ4_NL;
    case KvType::kQ5_0:
      return GGML_TYPE_Q5_0;
    case KvType::kQ5_1:
      return GGML_TYPE_Q5_1;
  }
  return GGML_TYPE_F16;
}

Result<llama_flash_attn_type> ChooseFlashAttention(const EngineOptions& options,
                                                   const KvTypeChoice& choice) {
  if (options.flash_attention == "on" || options.flash_attention == "1") {
    return LLAMA_FLASH_ATTN_TYPE_ENABLED;
  }
  if (options.flash_attention == "off" || options.flash_attention == "0") {
    return LLAMA_FLASH_ATTN_TYPE_DISABLED;
  }
  if (options.flash_attention != "auto") {
    return MakeError(
        ErrorCode::kInvalidArgument,
        "flash attention must be on, off or auto, not \"" + options.flash_attention + "\"");
  }
  return choice.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_AUTO;
}

class Loader {
 public:
  Loader(const EngineOptions& options, Env* env) : options_(options), env_(env) {}

  Result<LoadedLlama> Run() {
    UseAlignedArrays();
    SKIPPY_RETURN_IF_ERROR(CheckOptions());
    SKIPPY_ASSIGN_OR_RETURN(out_.model_files, ListModelFiles(env_, options_.model_path));
    SKIPPY_ASSIGN_OR_RETURN(rope_tensors_, ReadRopeTensors(out_.model_files));
    SKIPPY_RETURN_IF_ERROR(LoadModel());
    SKIPPY_RETURN_IF_ERROR(LoadAdapters());
    DescribeModel();
    SKIPPY_RETURN_IF_ERROR(MakeContext());
    SKIPPY_RETURN_IF_ERROR(ApplyAdapters());
    DescribeState();
    DescribeAttention();
    return std::move(out_);
  }

  Result<LoadedEmbedder> RunEmbedder() {
    SKIPPY_RETURN_IF_ERROR(CheckOptions());
    SKIPPY_ASSIGN_OR_RETURN(out_.model_files, ListModelFiles(env_, options_.model_path));
    SKIPPY_RETURN_IF_ERROR(LoadModel());
    SKIPPY_RETURN_IF_ERROR(LoadAdapters());
    DescribeModel();
    ModelInfo& info = out_.info;
    info.embeds = true;
    info.cache_reason = "embeddings are not cached";
    llama_context_params params = ContextParams({}, LLAMA_FLASH_ATTN_TYPE_AUTO);
    // Without a causal mask all tokens of a text are computed in one step.
    params.n_batch = params.n_ubatch = params.n_ctx;
    params.n_seq_max = 1;
    params.n_outputs_max = params.n_ctx;
    params.embeddings = true;
    LlamaContextPtr context(llama_init_from_model(model_.get(), params));
    if (!context) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "no context for " + options_.model_path + ": " + log_.Reason());
    }
    std::vector<float> scales = out_.adapter_scales;
    if (!adapters_.empty() && llama_set_adapters_lora(context.get(), adapters_.data(),
                                                      adapters_.size(), scales.data()) != 0) {
      return MakeError(ErrorCode::kInvalidArgument, "the adapters cannot be used together");
    }
    return LoadedEmbedder{std::move(model_), std::move(context), std::move(info)};
  }

 private:
  Status CheckOptions() {
    out_.lanes = options_.parallel > 0 ? options_.parallel : kDefaultLanes;
    out_.residents_max =
        options_.resident_sequences_max >= 0 ? options_.resident_sequences_max : out_.lanes;
    if (out_.lanes + kReservedLanes > kSequencesMax) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "parallel requests: at most " +
                           std::to_string(kSequencesMax - kReservedLanes) + ", not " +
                           std::to_string(out_.lanes));
    }
    out_.residents_max = std::min(out_.residents_max, kSequencesMax - kReservedLanes - out_.lanes);
    if (options_.context_tokens < 0 || options_.batch_tokens < 1 || options_.ubatch_tokens < 1) {
      return MakeError(ErrorCode::kInvalidArgument, "context and batch sizes must be positive");
    }
    return {};
  }

  Status LoadModel() {
    static std::once_flag backend_once;
    std::call_once(backend_once, llama_backend_init);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = options_.gpu_layers;
    std::vector<float> shares;
    SKIPPY_RETURN_IF_ERROR(RegisterRpcServers(options_.placement.rpc_servers));
    SKIPPY_RETURN_IF_ERROR(ApplyPlacement(options_.placement, &shares, &params));
    if (options_.load_progress) {
      params.progress_callback = OnProgress;
      params.progress_callback_user_data =
          const_cast<std::function<void(float)>*>(&options_.load_progress);
    }
    model_.reset(llama_model_load_from_file(out_.model_files.front().c_str(), params));
    if (!model_) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "the model " + options_.model_path + " cannot be loaded: " + log_.Reason());
    }
    if (llama_model_has_encoder(model_.get()) || !llama_model_has_decoder(model_.get())) {
      return MakeError(ErrorCode::kUnsupported,
                       "models with an encoder are not served: " + options_.model_path);
    }
    return {};
  }

  Status LoadAdapters() {
    for (const auto& [path, scale] : options_.loras) {
      llama_adapter_lora* adapter = llama_adapter_lora_init(model_.get(), path.c_str());
      if (adapter == nullptr) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "the adapter " + path + " cannot be loaded: " + log_.Reason());
      }
      if (llama_adapter_get_alora_n_invocation_tokens(adapter) > 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "adapters that start at an invocation are not served: " + path);
      }
      adapters_.push_back(adapter);
      out_.adapter_files.push_back(path);
      out_.adapter_scales.push_back(scale);
    }
    return {};
  }

  Status ApplyAdapters() {
    if (adapters_.empty()) {
      return {};
    }
    std::vector<float> scales = out_.adapter_scales;
    if (llama_set_adapters_lora(out_.context->raw(), adapters_.data(), adapters_.size(),
                                scales.data()) != 0) {
      return MakeError(ErrorCode::kInvalidArgument, "the adapters cannot be used together");
    }
    return {};
  }

  void DescribeModel() {
    ModelInfo& info = out_.info;
    info.path = options_.model_path;
    info.architecture = MetaValue(model_.get(), "general.architecture");
    info.name = !options_.model_alias.empty() ? options_.model_alias
                                              : MetaValue(model_.get(), "general.name");
    if (info.name.empty()) {
      info.name = std::filesystem::path(options_.model_path).stem().string();
    }
    info.parameter_count = llama_model_n_params(model_.get());
    info.weight_bytes = llama_model_size(model_.get());
    info.train_context_tokens = llama_model_n_ctx_train(model_.get());
    info.vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    info.embedding = llama_model_n_embd(model_.get());
    info.context_tokens = options_.context_tokens;
    if (info.context_tokens == 0) {
      info.context_tokens = info.train_context_tokens > 0
                                ? std::min(info.train_context_tokens, kDefaultContextTokens)
                                : kDefaultContextTokens;
    }
    out_.family = ClassifyFamily(ReadFamilyFacts(model_.get()));
    info.family = ToString(out_.family.family);
    info.cache_reason = out_.family.reason;
  }

  llama_context_params ContextParams(const KvTypeChoice& choice,
                                     llama_flash_attn_type flash) const {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(out_.info.context_tokens);
    params.n_batch = static_cast<std::uint32_t>(std::max(options_.batch_tokens, out_.lanes));
    params.n_ubatch = static_cast<std::uint32_t>(options_.ubatch_tokens);
    params.n_seq_max = static_cast<std::uint32_t>(out_.lanes + out_.residents_max + kReservedLanes);
    // One row of logits per running request, not one per token of a batch.
    params.n_outputs_max = params.n_seq_max;
    params.n_threads = options_.threads > 0 ? options_.threads : DefaultThreads();
    params.n_threads_batch = options_.threads_batch > 0 ? options_.threads_batch : params.n_threads;
    params.flash_attn_type = flash;
    params.type_k = ToGgml(choice.k);
    params.type_v = ToGgml(choice.v);
    params.offload_kqv = true;
    params.swa_full = false;
    params.kv_unified = true;
    params.no_perf = true;
    return params;
  }

  Result<KvTypeChoice> ChooseKvTypes() const {
    KvTypeFacts facts = ReadKvTypeFacts(model_.get());
    facts.on_accelerator = HasAccelerator(options_);
    return ResolveKvTypes({options_.cache_type_k, options_.cache_type_v, options_.flash_attention,
                           options_.cache_type_source},
                          facts);
  }

  // What backends can do is known only when the context is made: metadata promises nothing.
  bool FallBackToF16(KvTypeChoice* choice) const {
    const bool chosen_here =
        choice->source == "default" && (choice->k != KvType::kF16 || choice->v != KvType::kF16);
    if (chosen_here) {
      choice->reason = log_.Reason();
      choice->k = choice->v = KvType::kF16;
      choice->flash = false;
      choice->source = "backend";
    }
    return chosen_here;
  }

  Status MakeContext() {
    SKIPPY_ASSIGN_OR_RETURN(KvTypeChoice choice, ChooseKvTypes());
    LlamaContextPtr context;
    do {
      SKIPPY_ASSIGN_OR_RETURN(const llama_flash_attn_type flash,
                              ChooseFlashAttention(options_, choice));
      params_ = ContextParams(choice, flash);
      const FlashAttentionWatch watch;
      context.reset(llama_init_from_model(model_.get(), params_));
      flash_resolved_ = watch.resolved();
    } while (!context && FallBackToF16(&choice));
    if (!choice.reason.empty()) {
      LogInfo("K {} V {}: {}", ToString(choice.k), ToString(choice.v), choice.reason);
    }
    if (!context) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "no context for " + options_.model_path + ": " + log_.Reason());
    }
    if (llama_get_memory(context.get()) == nullptr) {
      return MakeError(ErrorCode::kUnsupported,
                       "the architecture " + out_.info.architecture + " does not generate text");
    }
    out_.info.cache_type_k = ToString(choice.k);
    out_.info.cache_type_v = ToString(choice.v);
    out_.info.cache_type_source = choice.source;
    out_.context = std::make_unique<LlamaContext>(std::move(model_), std::move(context),
                                                  AccessOf(out_.family));
    return {};
  }

  void DescribeState() {
    StateFieldsInput input;
    input.model = out_.context->model();
    input.context = out_.context->raw();
    input.params = &params_;
    input.flash_attention_resolved = flash_resolved_;
    input.family = out_.family.family;
    input.rope_tensors = rope_tensors_;
    Result<StateFields> fields = MakeStateFields(input);
    if (fields) {
      out_.state_fields = std::move(*fields);
      out_.info.flash_attention = out_.state_fields.flash_attention == FlashAttention::kOn;
      return;
    }
    out_.info.flash_attention =
        flash_resolved_.value_or(params_.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_ENABLED);
    if (out_.family.cacheable_now) {
      out_.family.cacheable_now = false;
      out_.family.reason = fields.error().text;
      out_.info.cache_reason = out_.family.reason;
    }
  }

  void DescribeAttention() {
    const RowAccess access = out_.context->access();
    const bool has_rows = access == RowAccess::kAnyRange || access == RowAccess::kCheckpoints;
    if (!has_rows || HasAccelerator(options_)) {
      return;
    }
    Result<AttentionShape> shape = ReadAttentionShape(out_.context->model());
    if (!shape) {
      LogInfo("idle sequences stay in the engine: {}", shape.error().text);
      return;
    }
    shape->k_type = params_.type_k;
    shape->v_type = params_.type_v;
    shape->flash = out_.info.flash_attention;
    shape->threads = params_.n_threads;
    out_.attention = *shape;
  }

  const EngineOptions& options_;
  Env* const env_;
  const LogScope log_;
  LoadedLlama out_;
  RopeTensors rope_tensors_;
  LlamaModelPtr model_;                        // until the context takes it
  std::vector<llama_adapter_lora*> adapters_;  // freed with the model
  llama_context_params params_{};
  std::optional<bool> flash_resolved_;
};

}  // namespace

Result<LoadedLlama> LoadLlama(const EngineOptions& options, Env* env) {
  return Loader(options, env).Run();
}

Result<LoadedEmbedder> LoadEmbedder(const EngineOptions& options, Env* env) {
  return Loader(options, env).RunEmbedder();
}

}  // namespace skippy
