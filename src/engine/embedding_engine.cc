#include "engine/embedding_engine.h"

#include <llama.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "engine/chat_format.h"
#include "engine/llama_loader.h"

namespace skippy {
namespace {

struct BatchDeleter {
  void operator()(llama_batch* batch) const {
    llama_batch_free(*batch);
    delete batch;
  }
};

// All tokens as one sequence, each with an output for the pooling.
std::unique_ptr<llama_batch, BatchDeleter> BatchOf(std::span<const Token> tokens) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  std::unique_ptr<llama_batch, BatchDeleter> batch(new llama_batch(llama_batch_init(count, 0, 1)));
  batch->n_tokens = count;
  for (std::int32_t i = 0; i < count; ++i) {
    batch->token[i] = tokens[static_cast<std::size_t>(i)];
    batch->pos[i] = i;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = 0;
    batch->logits[i] = 1;
  }
  return batch;
}

void MakeLengthOne(std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * value;
  }
  const double length = std::sqrt(sum);
  for (float& value : values) {
    value = length > 0 ? static_cast<float>(value / length) : 0.0F;
  }
}

// One text to compute; lives where its caller waits.
struct Task {
  std::span<const Token> tokens;
  std::promise<Result<std::vector<float>>> done;
};

// As many callers wait as the HTTP server lets in, so the queue needs no bound of its own.
class EmbeddingEngine final : public Engine {
 public:
  EmbeddingEngine(LoadedEmbedder loaded, std::unique_ptr<ChatFormat> chat)
      : loaded_(std::move(loaded)), chat_(std::move(chat)), thread_([this] { Run(); }) {}
  ~EmbeddingEngine() override { EmbeddingEngine::Stop(); }

  const ModelInfo Info() const override { return loaded_.info; }
  const ChatFormat& chat() const override { return *chat_; }

  Result<std::unique_ptr<Generation>> Submit(GenerateRequest /*request*/) override {
    return MakeError(ErrorCode::kUnsupported,
                     "the loaded model makes embeddings and no text: use /v1/embeddings");
  }

  EngineStatus GetStatus() const override {
    EngineStatus status;
    status.lanes = 1;
    status.requests_total = requests_;
    status.prompt_tokens_total = status.computed_tokens_total = tokens_;
    return status;
  }

  Result<std::vector<float>> Embed(std::span<const Token> tokens) override EXCLUDES(mu_) {
    const TokenCount context_tokens = loaded_.info.context_tokens;
    if (tokens.empty() || tokens.size() > static_cast<std::size_t>(context_tokens)) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "the input has " + std::to_string(tokens.size()) +
                           " tokens, the context holds " + std::to_string(context_tokens));
    }
    Task task{tokens, {}};
    auto done = task.done.get_future();
    {
      MutexLock lock(mu_);
      if (stopping_) {
        return Stopping();
      }
      tasks_.push_back(&task);
    }
    changed_.NotifyOne();
    return done.get();
  }

  void Stop() override EXCLUDES(mu_) {
    MutexLock stop_lock(stop_mu_);
    {
      MutexLock lock(mu_);
      stopping_ = true;
    }
    changed_.NotifyOne();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  static Error Stopping() { return MakeError(ErrorCode::kUnavailable, "the engine is stopping"); }

  // Sole user of the context. What is left when it ends is answered too.
  void Run() EXCLUDES(mu_) {
    while (true) {
      Task* task = nullptr;
      bool stopping = false;
      {
        MutexLock lock(mu_);
        while (tasks_.empty() && !stopping_) {
          changed_.Wait(mu_);
        }
        if (tasks_.empty()) {
          return;
        }
        task = tasks_.front();
        tasks_.pop_front();
        stopping = stopping_;
      }
      task->done.set_value(stopping ? Result<std::vector<float>>(Stopping())
                                    : Compute(task->tokens));
    }
  }

  Result<std::vector<float>> Compute(std::span<const Token> tokens) {
    llama_context* const context = loaded_.context.get();
    if (const llama_memory_t memory = llama_get_memory(context)) {
      llama_memory_clear(memory, /*data=*/false);
    }
    if (llama_decode(context, *BatchOf(tokens)) != 0) {
      return MakeError(ErrorCode::kInternal, "llama.cpp could not compute the embedding");
    }
    const float* const pooled = llama_get_embeddings_seq(context, 0);
    if (pooled == nullptr) {
      return MakeError(ErrorCode::kInternal, "llama.cpp gave no embedding");
    }
    std::vector<float> values(pooled, pooled + llama_model_n_embd_out(loaded_.model.get()));
    ++requests_;
    tokens_ += tokens.size();
    MakeLengthOne(values);
    return values;
  }

  const LoadedEmbedder loaded_;
  const std::unique_ptr<ChatFormat> chat_;
  std::atomic<std::uint64_t> requests_ = 0;
  std::atomic<std::uint64_t> tokens_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::deque<Task*> tasks_ GUARDED_BY(mu_);

  Mutex stop_mu_;  // serialises Stop
  std::thread thread_ GUARDED_BY(stop_mu_);
};

}  // namespace

Result<std::unique_ptr<Engine>> OpenEmbeddingEngine(const EngineOptions& options,
                                                    EmbeddingPooling pooling, Env* env) {
  if (pooling == EmbeddingPooling::kRank) {
    return MakeError(ErrorCode::kUnsupported,
                     "models that rank are not served: " + options.model_path);
  }
  SKIPPY_ASSIGN_OR_RETURN(LoadedEmbedder loaded, LoadEmbedder(options, env));
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<ChatFormat> chat, MakeChatFormat(loaded.model.get(), ""));
  LogInfo("model {}: makes embeddings, {} tokens of context", loaded.info.name,
          loaded.info.context_tokens);
  return std::unique_ptr<Engine>(
      std::make_unique<EmbeddingEngine>(std::move(loaded), std::move(chat)));
}

}  // namespace skippy
