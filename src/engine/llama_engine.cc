#include "engine/llama_engine.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/chat_format.h"
#include "engine/embedding_engine.h"
#include "engine/gguf_files.h"
#include "engine/prefix_history.h"
#include "engine/sampler.h"
#include "engine/weights_digest.h"

namespace skippy {
namespace {

class LlamaGeneration final : public Generation {
 public:
  LlamaGeneration(std::shared_ptr<EventQueue> events, std::shared_ptr<EngineWaker> waker)
      : events_(std::move(events)), waker_(std::move(waker)) {}
  ~LlamaGeneration() override { LlamaGeneration::Cancel(); }

  std::optional<GenerateEvent> Next(std::chrono::milliseconds timeout) override {
    return events_->Pop(timeout);
  }
  void Cancel() override {
    events_->Cancel();
    waker_->Wake();
  }

 private:
  const std::shared_ptr<EventQueue> events_;
  const std::shared_ptr<EngineWaker> waker_;
};

// "" for an empty path: the model's own template.
Result<std::string> ReadChatTemplate(const std::string& path) {
  if (path.empty()) {
    return std::string();
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || text.empty()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--chat-template-file: " + path + " cannot be read or is empty");
  }
  return text;
}

bool HasTier(Cache* cache) {
  if (cache == nullptr) {
    return false;
  }
  const CacheStatus status = cache->GetStatus();
  return status.disk_state != TierState::kOff || status.ram.budget_bytes > 0;
}

}  // namespace

void EngineWaker::Wake() {
  {
    MutexLock lock(mu_);
    woken_ = true;
  }
  changed_.NotifyAll();
}

void EngineWaker::Wait() {
  MutexLock lock(mu_);
  while (!woken_) {
    changed_.Wait(mu_);
  }
  woken_ = false;
}

LlamaEngine::LlamaEngine(LoadedLlama loaded, std::unique_ptr<ChatFormat> chat,
                         const EngineOptions& options, Cache* cache, Env* env)
    : loaded_(std::move(loaded)),
      chat_(std::move(chat)),
      options_(options),
      cache_(loaded_.family.cacheable_now && HasTier(cache) ? cache : nullptr),
      env_(env),
      domains_(cache_, loaded_.info.name),
      scheduler_(loaded_.context.get(),
                 SchedulerOptions{loaded_.lanes, loaded_.residents_max, loaded_.info.context_tokens,
                                  loaded_.family.resume_rule, cache_, &domains_,
                                  [waker = waker_] { waker->Wake(); }}),
      status_(scheduler_.status()),
      info_(loaded_.info) {
  engine_thread_ = std::thread([this] { RunEngine(); });
  if (cache_ != nullptr) {
    identity_thread_ = std::thread([this] { ComputeIdentity(); });
  }
}

LlamaEngine::~LlamaEngine() {
  LlamaEngine::Stop();
  const ModelInfo info = Info();
  if (cache_ != nullptr && info.identity_known) {
    cache_->DropRam(info.model_identity);
  }
}

const ModelInfo LlamaEngine::Info() const {
  MutexLock lock(mu_);
  return info_;
}

EngineStatus LlamaEngine::GetStatus() const {
  MutexLock lock(mu_);
  return status_;
}

PrefixHistory LlamaEngine::FindHistory(const std::string& name_space,
                                       std::span<const Token> prompt) const {
  if (cache_ == nullptr) {
    return {};
  }
  const ModelInfo info = Info();
  if (!info.identity_known) {
    return {};
  }
  const DomainSpec own{info.model_identity, info.state_identity, name_space, info.name};
  return FindPrefixHistory({cache_, env_, options_.digest_memo_directory, own,
                            loaded_.family.resume_rule, loaded_.state_fields},
                           prompt);
}

Status LlamaEngine::CheckRequest(const GenerateRequest& request) const {
  if (request.prompt.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  }
  const auto invalid = std::find_if(request.prompt.begin(), request.prompt.end(),
                                    [this](Token token) { return !chat_->IsValidToken(token); });
  if (invalid != request.prompt.end()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "token " + std::to_string(*invalid) + " is not in the vocabulary");
  }
  if (request.prompt.size() >= static_cast<std::size_t>(loaded_.info.context_tokens)) {
    return MakeError(ErrorCode::kInvalidArgument, "context_length_exceeded: the prompt has " +
                                                      std::to_string(request.prompt.size()) +
                                                      " tokens, the context holds " +
                                                      std::to_string(loaded_.info.context_tokens));
  }
  return {};
}

Result<std::shared_ptr<void>> LlamaEngine::TakePlace() {
  const int places_max = loaded_.lanes + std::max(options_.queue_max, 0);
  std::shared_ptr<void> place(nullptr, [places = places_](void*) { places->fetch_sub(1); });
  if (places_->fetch_add(1) >= places_max) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "the queue is full: " + std::to_string(places_max) + " requests");
  }
  return place;
}

Result<std::unique_ptr<Generation>> LlamaEngine::Submit(GenerateRequest request) {
  SKIPPY_RETURN_IF_ERROR(CheckRequest(request));
  SKIPPY_ASSIGN_OR_RETURN(std::shared_ptr<void> place, TakePlace());
  const llama_model* model = loaded_.context->model();
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<Sampler> sampler,
                          Sampler::Create(model, request.sampling, request.grammar,
                                          request.reply_format.get(), request.top_logprobs));
  sampler->AcceptPrompt(request.prompt);
  domains_.Want(request.name_space, request.prompt, loaded_.family.resume_rule);
  auto events = std::make_shared<EventQueue>();
  ReplyWriter writer(model, request);
  auto job = std::make_unique<Job>(std::move(request), events, std::move(writer));
  job->sampler = std::move(sampler);
  job->place = std::move(place);
  {
    MutexLock lock(mu_);
    if (stopping_) {
      return MakeError(ErrorCode::kUnavailable, "the engine is stopping");
    }
    inbox_.push_back(std::move(job));
  }
  waker_->Wake();
  return std::unique_ptr<Generation>(std::make_unique<LlamaGeneration>(std::move(events), waker_));
}

void LlamaEngine::ForgetResidents() {
  MutexLock lock(mu_);
  if (stopping_) {
    return;
  }
  const std::uint64_t mine = ++forgets_wanted_;
  waker_->Wake();
  while (forgets_done_ < mine) {
    forgotten_.Wait(mu_);
  }
}

// False once the engine stops.
bool LlamaEngine::TakeInbox() {
  std::vector<std::unique_ptr<Job>> jobs;
  bool stopping = false;
  std::uint64_t forgets = 0;
  bool forget = false;
  {
    MutexLock lock(mu_);
    jobs.swap(inbox_);
    stopping = stopping_;
    scheduler_.SetDiskSpeed(disk_ms_per_byte_);
    forgets = forgets_wanted_;
    forget = forgets_done_ != forgets;
  }
  if (forget) {
    scheduler_.ForgetResidents();
    MutexLock lock(mu_);
    forgets_done_ = forgets;
    forgotten_.NotifyAll();
  }
  for (std::unique_ptr<Job>& job : jobs) {
    scheduler_.Enqueue(std::move(job));
  }
  return !stopping;
}

void LlamaEngine::PublishStatus() {
  {
    MutexLock lock(mu_);
    status_ = scheduler_.status();
  }
  scheduler_.DeliverEnds();
}

Status LlamaEngine::WaitUntilWarm() { return warmed_.get_future().get(); }

void LlamaEngine::MeasureIdleRent() {
  if (!loaded_.attention || cache_ == nullptr) {
    return;
  }
  const Result<IdleCellCost> cost = MeasureIdleCellCost(*loaded_.attention);
  if (!cost) {
    LogInfo("idle sequences stay in the engine: {}", cost.error().text);
    return;
  }
  constexpr double kCells = 1000;
  LogInfo("1000 idle cells cost {:.3f} ms a token when decoding, {:.3f} in a prompt",
          cost->decode_ms * kCells, cost->prefill_ms * kCells);
  scheduler_.SetIdleRent(IdleRent(*cost, loaded_.attention->row_bytes()));
}

void LlamaEngine::RunEngine() {
  loaded_.context->AdoptThread();
  // Here and not where the model is loaded: a second thread that has computed keeps a team of
  // OpenMP workers of its own, and with more workers than cores all of them stop spinning at
  // barriers, which makes decoding several times slower.
  const Result<double> prefill_ms = loaded_.context->WarmUp();
  if (prefill_ms) {
    scheduler_.SetPrefillSpeed(*prefill_ms);
    MeasureIdleRent();
  }
  warmed_.set_value(prefill_ms ? Status() : Status(prefill_ms.error()));
  while (TakeInbox()) {
    const bool progress = scheduler_.Step();
    PublishStatus();
    if (!progress) {
      waker_->Wait();
    }
  }
  scheduler_.Stop();
  PublishStatus();
}

void LlamaEngine::Stop() {
  MutexLock stop_lock(stop_mu_);
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cancel_digest_ = true;
  waker_->Wake();
  if (identity_thread_.joinable()) {
    identity_thread_.join();
  }
  if (engine_thread_.joinable()) {
    engine_thread_.join();
  }
}

Status LlamaEngine::FindIdentity() {
  ModelFields fields;
  SKIPPY_ASSIGN_OR_RETURN(
      fields.shards,
      DigestFiles(env_, loaded_.model_files, options_.digest_memo_directory, &cancel_digest_));
  SKIPPY_ASSIGN_OR_RETURN(
      const std::vector<ContentDigest> adapters,
      DigestFiles(env_, loaded_.adapter_files, options_.digest_memo_directory, &cancel_digest_));
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    fields.adapters.push_back({adapters[i], loaded_.adapter_scales[i], {}});
  }
  const ModelIdentity model = ComputeModelIdentity(fields);
  const StateIdentity state = ComputeStateIdentity(model, loaded_.state_fields);
  RememberStateFields(env_, options_.digest_memo_directory, state, loaded_.state_fields);
  // Before anything can be found there.
  if (const std::optional<DiskProbe> probe = cache_->ProbeDisk()) {
    const double bytes_at_once = static_cast<double>(probe->byte_count) * probe->reads_at_once;
    LogInfo("disk: {} bytes read in {:.2f} ms", probe->byte_count, probe->ms);
    MutexLock lock(mu_);
    disk_ms_per_byte_ = probe->ms / bytes_at_once;
  }
  // Before anybody may see the identity as known, what was asked for meanwhile is open.
  domains_.SetIdentity(model, state);
  MutexLock lock(mu_);
  info_.model_identity = model;
  info_.state_identity = state;
  info_.identity_known = true;
  return {};
}

void LlamaEngine::ComputeIdentity() {
  const auto start = EngineClock::now();
  if (const Status found = FindIdentity(); !found) {
    if (found.error().code == ErrorCode::kCancelled) {
      return;
    }
    LogWarning("cache off: the weights' digest is not known: {}", found.error().text);
    MutexLock lock(mu_);
    info_.cache_reason = "the weights' digest is not known: " + found.error().text;
    return;
  }
  LogInfo("model identity known after {:.0f} ms", MillisecondsSince(start));
  waker_->Wake();
}

Result<std::unique_ptr<Engine>> OpenLlamaEngine(const EngineOptions& options, Cache* cache,
                                                Env* env) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                          ListModelFiles(env, options.model_path));
  SKIPPY_ASSIGN_OR_RETURN(const EmbeddingPooling pooling, ReadEmbeddingPooling(files.front()));
  if (pooling != EmbeddingPooling::kNone) {
    return OpenEmbeddingEngine(options, pooling, env);
  }
  SKIPPY_ASSIGN_OR_RETURN(LoadedLlama loaded, LoadLlama(options, env));
  SKIPPY_ASSIGN_OR_RETURN(const std::string chat_template,
                          ReadChatTemplate(options.chat_template_file));
  SKIPPY_ASSIGN_OR_RETURN(std::unique_ptr<ChatFormat> chat,
                          MakeChatFormat(loaded.context->model(), chat_template));
  LogInfo(
      "model {}: {}, {} tokens of context, {} lanes, {} residents, K {} V {} ({}), flash "
      "attention {}",
      loaded.info.name, loaded.info.family, loaded.info.context_tokens, loaded.lanes,
      loaded.residents_max, loaded.info.cache_type_k, loaded.info.cache_type_v,
      loaded.info.cache_type_source, loaded.info.flash_attention ? "on" : "off");
  auto engine =
      std::make_unique<LlamaEngine>(std::move(loaded), std::move(chat), options, cache, env);
  SKIPPY_RETURN_IF_ERROR(engine->WaitUntilWarm());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace skippy
