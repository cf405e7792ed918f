#include "engine/fake_engine.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "base/mutex.h"

namespace skippy {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCall = "<call>";
constexpr std::string_view kCallEnd = "</call>";

struct FakeReplyFormat final : ReplyFormat {};

std::vector<Token> ToTokens(std::string_view text) {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

std::string ToText(std::span<const Token> tokens) {
  std::string text;
  for (const Token token : tokens) {
    text.push_back(static_cast<char>(token));
  }
  return text;
}

// Bytes of the code point that `text` begins with, 0 when it is cut off.
std::size_t CodePointBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t byte_count = 1;
  if (lead >= 0xF0) {
    byte_count = 4;
  } else if (lead >= 0xE0) {
    byte_count = 3;
  } else if (lead >= 0xC0) {
    byte_count = 2;
  }
  return byte_count <= text.size() ? byte_count : 0;
}

std::vector<GeneratedToken> ScoreTokens(std::string_view piece, int top_logprobs) {
  std::vector<GeneratedToken> scored;
  for (const char c : top_logprobs < 0 ? std::string_view() : piece) {
    GeneratedToken token;
    token.chosen = {static_cast<unsigned char>(c), std::string(1, c), -0.25F};
    for (int i = 0; i < top_logprobs; ++i) {
      const Token other = (token.chosen.token + i) % 256;
      token.top.push_back({other, std::string(1, static_cast<char>(other)), -0.25F - 0.5F * i});
    }
    scored.push_back(std::move(token));
  }
  return scored;
}

// Drops a tail of `text` that may be the beginning of `tag`.
std::string_view WithoutPartialTag(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (tag.starts_with(text.substr(text.size() - n))) {
      return text.substr(0, text.size() - n);
    }
  }
  return text;
}

class FakeChatFormat final : public ChatFormat {
 public:
  explicit FakeChatFormat(std::shared_ptr<FakeEngineState> state) : state_(std::move(state)) {}
  Result<ChatPrompt> Apply(const ChatRequest& request) const override;
  Result<ReplyMessage> Parse(const ReplyFormat* format, const std::string& text,
                             bool partial) const override;
  std::vector<ReplyDelta> Diff(const ReplyMessage& before,
                               const ReplyMessage& after) const override;
  Result<std::string> GrammarOfSchema(const std::string& schema) const override {
    return schema.find("\"unsupported\"") == std::string::npos
               ? Result<std::string>("schema " + schema)
               : MakeError(ErrorCode::kInvalidArgument, "the JSON schema is not supported");
  }
  Result<std::vector<Token>> Tokenize(std::string_view text, bool, bool) const override {
    return ToTokens(text);
  }
  std::string Detokenize(std::span<const Token> tokens) const override { return ToText(tokens); }
  std::string Piece(Token token) const override { return std::string(1, static_cast<char>(token)); }
  bool IsValidToken(Token token) const override { return token >= 0 && token < 256; }

 private:
  const std::shared_ptr<FakeEngineState> state_;
};

}  // namespace

struct FakeEngineState {
  explicit FakeEngineState(FakeEngineOptions the_options) : options(std::move(the_options)) {}

  TokenCount Remembered(const GenerateRequest& request) REQUIRES(mu);

  const FakeEngineOptions options;
  Mutex mu;
  CondVar changed;
  bool held GUARDED_BY(mu) = false;
  bool stopped GUARDED_BY(mu) = false;
  int cached_tier GUARDED_BY(mu) = 1;
  TokenCount fail_after GUARDED_BY(mu) = -1;
  Error failure GUARDED_BY(mu);
  EngineStatus status GUARDED_BY(mu);
  std::map<std::string, std::vector<std::vector<Token>>> seen GUARDED_BY(mu);  // by namespace
  std::optional<GenerateRequest> last_request GUARDED_BY(mu);
  std::optional<ChatRequest> last_chat_request GUARDED_BY(mu);
};

// The longest prefix of the prompt that an earlier one had; the last token is always computed.
TokenCount FakeEngineState::Remembered(const GenerateRequest& request) {
  std::size_t longest = 0;
  for (const std::vector<Token>& earlier : seen[request.name_space]) {
    const auto [mine, theirs] =
        std::mismatch(request.prompt.begin(), request.prompt.end(), earlier.begin(), earlier.end());
    longest = std::max(longest, static_cast<std::size_t>(mine - request.prompt.begin()));
  }
  return static_cast<TokenCount>(std::min(longest, request.prompt.size() - 1));
}

namespace {

Result<ChatPrompt> FakeChatFormat::Apply(const ChatRequest& request) const {
  {
    MutexLock lock(state_->mu);
    state_->last_chat_request = request;
  }
  if (request.json_schema.find("\"unsupported\"") != std::string::npos) {
    return MakeError(ErrorCode::kInvalidArgument, "the JSON schema is not supported");
  }
  ChatPrompt prompt;
  prompt.text = request.tools_json + request.messages_json + "\nassistant:";
  prompt.tokens = ToTokens(prompt.text);
  const std::size_t user = prompt.text.rfind("\"role\":\"user\"");
  prompt.last_user_position = user == std::string::npos ? 0 : static_cast<TokenCount>(user);
  prompt.reply_format = std::make_shared<FakeReplyFormat>();
  return prompt;
}

// "<think>REASONING</think>CONTENT<call>NAME ARGUMENTS</call>...", every part may be missing.
Result<ReplyMessage> FakeChatFormat::Parse(const ReplyFormat* format, const std::string& text,
                                           bool partial) const {
  ReplyMessage message;
  std::string_view rest = text;
  if (format == nullptr) {
    message.content = text;
    return message;
  }
  if (rest.starts_with(kThink)) {
    const std::size_t end = rest.find(kThinkEnd);
    message.reasoning = rest.substr(kThink.size(), end == rest.npos ? end : end - kThink.size());
    rest = end == rest.npos ? std::string_view() : rest.substr(end + kThinkEnd.size());
    if (end == std::string_view::npos) {
      message.reasoning = WithoutPartialTag(message.reasoning, kThinkEnd);
    }
  } else if (partial && kThink.starts_with(rest)) {
    return message;
  }
  const std::size_t first_call = rest.find(kCall);
  message.content = rest.substr(0, first_call);
  if (partial && first_call == std::string_view::npos) {
    message.content = WithoutPartialTag(message.content, kCall);
  }
  for (std::size_t at = first_call; at != std::string_view::npos; at = rest.find(kCall, at + 1)) {
    const std::string_view body = rest.substr(at + kCall.size());
    const std::size_t end = body.find(kCallEnd);
    const std::string_view call = body.substr(0, end);
    const std::size_t space = call.find(' ');
    if (space == std::string_view::npos) {
      break;
    }
    std::string_view arguments = call.substr(space + 1);
    arguments = end == std::string_view::npos ? WithoutPartialTag(arguments, kCallEnd) : arguments;
    message.tool_calls.push_back({"call_" + std::to_string(message.tool_calls.size()),
                                  std::string(call.substr(0, space)), std::string(arguments)});
  }
  return message;
}

std::vector<ReplyDelta> FakeChatFormat::Diff(const ReplyMessage& before,
                                             const ReplyMessage& after) const {
  std::vector<ReplyDelta> deltas;
  if (after.reasoning.size() > before.reasoning.size()) {
    deltas.push_back({"", after.reasoning.substr(before.reasoning.size()), -1, {}});
  }
  if (after.content.size() > before.content.size()) {
    deltas.push_back({after.content.substr(before.content.size()), "", -1, {}});
  }
  for (std::size_t i = 0; i < after.tool_calls.size(); ++i) {
    const ToolCall& call = after.tool_calls[i];
    if (i >= before.tool_calls.size()) {
      deltas.push_back({"", "", static_cast<int>(i), call});
    } else if (call.arguments.size() > before.tool_calls[i].arguments.size()) {
      const std::size_t sent = before.tool_calls[i].arguments.size();
      deltas.push_back({"", "", static_cast<int>(i), {"", "", call.arguments.substr(sent)}});
    }
  }
  return deltas;
}

// Plans its whole reply when it is made and hands it out code point by code point.
class FakeGeneration final : public Generation {
 public:
  FakeGeneration(std::shared_ptr<FakeEngineState> state, GenerateRequest request,
                 RequestTimings timings);
  ~FakeGeneration() override { Cancel(); }
  std::optional<GenerateEvent> Next(std::chrono::milliseconds timeout) override;
  void Cancel() override;

 private:
  enum class Stage { kStart, kText, kDone };
  void Plan(std::string reply);
  GenerateEvent NextText();
  GenerateEvent Finish(FinishReason reason) REQUIRES(state_->mu);

  const std::shared_ptr<FakeEngineState> state_;
  const GenerateRequest request_;
  RequestTimings timings_;
  Stage stage_ = Stage::kStart;
  std::string reply_;
  std::size_t sent_bytes_ = 0;
  FinishReason finish_ = FinishReason::kStop;
  std::string stop_string_;
  bool cancelled_ GUARDED_BY(state_->mu) = false;
};

FakeGeneration::FakeGeneration(std::shared_ptr<FakeEngineState> state, GenerateRequest request,
                               RequestTimings timings)
    : state_(std::move(state)), request_(std::move(request)), timings_(timings) {
  const std::string prompt = ToText(request_.prompt);
  Plan(state_->options.reply ? state_->options.reply(request_, prompt) : prompt);
}

// Cuts the reply at the first stop string, at max_tokens and at the end of the context.
void FakeGeneration::Plan(std::string reply) {
  const auto room =
      static_cast<std::size_t>(state_->options.context_tokens) - request_.prompt.size();
  const std::size_t limit = request_.max_tokens < 0
                                ? room
                                : std::min(room, static_cast<std::size_t>(request_.max_tokens));
  std::size_t cut = std::string::npos;
  for (const std::string& stop : request_.stop) {
    const std::size_t at = reply.find(stop);
    if (at != std::string::npos && at + stop.size() <= limit && at < cut) {
      cut = at;
      stop_string_ = stop;
    }
  }
  timings_.generated_tokens = static_cast<TokenCount>(
      std::min({reply.size(), limit, cut == std::string::npos ? cut : cut + stop_string_.size()}));
  if (cut == std::string::npos && reply.size() > limit) {
    finish_ = FinishReason::kLength;
  }
  reply_ = reply.substr(0, std::min(cut, limit));
}

std::optional<GenerateEvent> FakeGeneration::Next(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(state_->mu);
  if (stage_ == Stage::kDone) {
    return std::nullopt;
  }
  while (state_->held && !state_->stopped && !cancelled_) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return std::nullopt;
    }
    state_->changed.WaitFor(state_->mu, deadline - now);
  }
  if (state_->stopped || cancelled_) {
    return Finish(FinishReason::kCancelled);
  }
  if (state_->fail_after >= 0 && sent_bytes_ >= static_cast<std::size_t>(state_->fail_after)) {
    return Finish(FinishReason::kError);
  }
  if (stage_ == Stage::kStart) {
    stage_ = Stage::kText;
    GenerateEvent event;
    event.kind = GenerateEvent::Kind::kPromptDone;
    event.timings = timings_;
    event.timings.generated_tokens = 0;
    return event;
  }
  const bool more = sent_bytes_ < reply_.size() &&
                    CodePointBytes(std::string_view(reply_).substr(sent_bytes_)) > 0;
  return more ? NextText() : Finish(finish_);
}

GenerateEvent FakeGeneration::NextText() {
  GenerateEvent event;
  const std::size_t byte_count = CodePointBytes(std::string_view(reply_).substr(sent_bytes_));
  event.text = reply_.substr(sent_bytes_, byte_count);
  event.tokens = ScoreTokens(event.text, request_.top_logprobs);
  sent_bytes_ += byte_count;
  return event;
}

GenerateEvent FakeGeneration::Finish(FinishReason reason) {
  stage_ = Stage::kDone;
  --state_->status.lanes_busy;
  if (reason == FinishReason::kCancelled) {
    ++state_->status.cancelled_total;
  }
  state_->changed.NotifyAll();
  GenerateEvent event;
  event.kind = GenerateEvent::Kind::kDone;
  event.finish = reason;
  event.stop_string = stop_string_;
  if (reason == FinishReason::kError) {
    event.error = state_->failure;
  }
  if (reason == FinishReason::kCancelled || reason == FinishReason::kError) {
    timings_.generated_tokens = static_cast<TokenCount>(sent_bytes_);
  }
  event.timings = timings_;
  state_->status.generated_tokens_total += static_cast<std::uint64_t>(timings_.generated_tokens);
  return event;
}

void FakeGeneration::Cancel() {
  MutexLock lock(state_->mu);
  cancelled_ = true;
  if (stage_ != Stage::kDone) {
    Finish(FinishReason::kCancelled);
  }
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options)
    : state_(std::make_shared<FakeEngineState>(std::move(options))),
      chat_(std::make_unique<FakeChatFormat>(state_)) {}

FakeEngine::~FakeEngine() { Stop(); }

const ModelInfo FakeEngine::Info() const {
  ModelInfo info;
  info.name = state_->options.model_name;
  info.architecture = "fake";
  info.family = "full-attention";
  info.context_tokens = state_->options.context_tokens;
  info.train_context_tokens = state_->options.context_tokens;
  info.vocabulary = 256;
  return info;
}

const ChatFormat& FakeEngine::chat() const { return *chat_; }

Result<std::unique_ptr<Generation>> FakeEngine::Submit(GenerateRequest request) {
  RequestTimings timings;
  {
    MutexLock lock(state_->mu);
    if (state_->stopped) {
      return MakeError(ErrorCode::kUnavailable, "the engine is stopping");
    }
    if (state_->status.lanes_busy >= state_->options.queue_max) {
      return MakeError(ErrorCode::kResourceExhausted, "the request queue is full");
    }
    const auto prompt_tokens = static_cast<TokenCount>(request.prompt.size());
    if (prompt_tokens == 0 || prompt_tokens >= state_->options.context_tokens) {
      return MakeError(ErrorCode::kInvalidArgument,
                       "the prompt has " + std::to_string(prompt_tokens) + " tokens, the context " +
                           std::to_string(state_->options.context_tokens));
    }
    const TokenCount cached = request.cache_read ? state_->Remembered(request) : 0;
    timings.prompt_tokens = prompt_tokens;
    timings.computed_tokens = prompt_tokens - cached;
    timings.cached_l1_tokens = state_->cached_tier == 1 ? cached : 0;
    timings.cached_l2_tokens = state_->cached_tier == 2 ? cached : 0;
    timings.cached_l3_tokens = state_->cached_tier == 3 ? cached : 0;
    timings.recorded_tokens = request.cache_write ? timings.computed_tokens : 0;
    if (request.cache_write) {
      state_->seen[request.name_space].push_back(request.prompt);
    }
    state_->last_request = request;
    ++state_->status.lanes_busy;
    ++state_->status.requests_total;
    state_->status.prompt_tokens_total += static_cast<std::uint64_t>(prompt_tokens);
    state_->status.computed_tokens_total += static_cast<std::uint64_t>(timings.computed_tokens);
    state_->changed.NotifyAll();
  }
  return std::unique_ptr<Generation>(
      std::make_unique<FakeGeneration>(state_, std::move(request), timings));
}

EngineStatus FakeEngine::GetStatus() const {
  MutexLock lock(state_->mu);
  return state_->status;
}

void FakeEngine::Stop() {
  MutexLock lock(state_->mu);
  state_->stopped = true;
  state_->changed.NotifyAll();
}

void FakeEngine::HoldEvents() {
  MutexLock lock(state_->mu);
  state_->held = true;
}

void FakeEngine::ReleaseEvents() {
  MutexLock lock(state_->mu);
  state_->held = false;
  state_->changed.NotifyAll();
}

void FakeEngine::SetCachedTier(int tier) {
  MutexLock lock(state_->mu);
  state_->cached_tier = tier;
}

void FakeEngine::FailAfter(TokenCount token_count, Error error) {
  MutexLock lock(state_->mu);
  state_->fail_after = token_count;
  state_->failure = std::move(error);
}

bool FakeEngine::WaitForRunning(int count, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(state_->mu);
  while (state_->status.lanes_busy != count) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return false;
    }
    state_->changed.WaitFor(state_->mu, deadline - now);
  }
  return true;
}

bool FakeEngine::WaitForCancelled(std::uint64_t count, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(state_->mu);
  while (state_->status.cancelled_total < count) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return false;
    }
    state_->changed.WaitFor(state_->mu, deadline - now);
  }
  return true;
}

std::optional<GenerateRequest> FakeEngine::last_request() const {
  MutexLock lock(state_->mu);
  return state_->last_request;
}

std::optional<ChatRequest> FakeEngine::last_chat_request() const {
  MutexLock lock(state_->mu);
  return state_->last_chat_request;
}

}  // namespace skippy
