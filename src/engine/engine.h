// The engine as the server sees it: submit token prompts, receive text events. No llama type leaks
// through here; a deterministic fake implements the same interface for tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/placement.h"
#include "skippy/cache.h"
#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy {

struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> typical_p;
  std::optional<float> frequency_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> repeat_penalty;
  std::optional<int> repeat_last_n;
  std::optional<std::uint32_t> seed;
  std::vector<std::pair<Token, float>> logit_bias;  // -infinity forbids
  bool ignore_eos = false;
};

// What the chat template says about a reply's form; opaque outside engine/ (grammar, triggers,
// parser). Immutable, shared between threads.
struct ReplyFormat {
  virtual ~ReplyFormat() = default;
};

struct GenerateRequest {
  std::string id;             // for logs and explain
  std::string name_space;     // isolation; "" shared
  std::vector<Token> prompt;  // at least one token
  // Offset in `prompt` where the last user message begins; 0 when unknown (checkpoint ladder).
  TokenCount last_user_position = 0;
  TokenCount max_tokens = -1;  // -1: until the context is full; 0: compute and record only
  SamplingOptions sampling;
  std::string grammar;                              // GBNF; empty: none
  std::shared_ptr<const ReplyFormat> reply_format;  // from ChatFormat; may be null
  std::vector<std::string> stop;
  int top_logprobs = -1;      // -1: no logprobs; 0..20
  bool cache_read = true;     // may resume from cached state
  bool cache_write = true;    // may be recorded
  bool cache_persist = true;  // may go to disk
  // For so long what is recorded is evicted after what nobody asked to keep; 0: not asked.
  std::chrono::seconds retain_for{0};
  // Of equally good residents the one with the same key is gone on with; empty: none.
  std::string affinity_key;
};

enum class FinishReason { kStop, kLength, kCancelled, kError };

struct TokenLogprob {
  Token token = 0;
  std::string piece;  // bytes of the token
  float logprob = 0.0F;
};

struct GeneratedToken {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // descending, only with top_logprobs > 0
};

// Where the prompt's tokens came from and how long each phase took. prompt = l1 + l2 + l3 +
// computed.
struct RequestTimings {
  TokenCount prompt_tokens = 0;
  TokenCount cached_l1_tokens = 0;
  TokenCount cached_l2_tokens = 0;
  TokenCount cached_l3_tokens = 0;
  TokenCount computed_tokens = 0;
  TokenCount generated_tokens = 0;
  TokenCount recorded_tokens = 0;  // newly handed to the cache
  // More of the prompt was found, but computing it was estimated to be faster; part of `computed`.
  TokenCount declined_tokens = 0;
  double queue_ms = 0;
  double lookup_ms = 0;
  double restore_ms = 0;
  double import_ms = 0;  // part of restore_ms: the engine thread's copying
  double prefill_ms = 0;
  double decode_ms = 0;
  double engine_cpu_ms = 0;  // engine-thread CPU time attributed to this request alone
  TokenCount cached_tokens() const {
    return cached_l1_tokens + cached_l2_tokens + cached_l3_tokens;
  }
};

// One event of a reply. Text is valid UTF-8, never split inside a code point, never part of a stop
// string.
struct GenerateEvent {
  enum class Kind { kPromptDone, kText, kDone };
  Kind kind = Kind::kText;
  std::string text;                    // kText: what is new
  std::vector<GeneratedToken> tokens;  // kText: the tokens it is made of, with top_logprobs >= 0
  FinishReason finish = FinishReason::kStop;  // kDone
  std::string stop_string;                    // kDone by a stop string: which
  std::optional<Error> error;                 // kDone with kError
  RequestTimings timings;                     // kPromptDone, kDone
};

// A running request. Destruction cancels it: the engine stops computing within one step and
// releases everything it held.
class Generation {
 public:
  virtual ~Generation() = default;
  // Waits for the next event up to `timeout`; nullopt on timeout. After kDone only nullopt.
  virtual std::optional<GenerateEvent> Next(std::chrono::milliseconds timeout) = 0;
  virtual void Cancel() = 0;
};

struct ChatRequest {
  std::string messages_json;         // OpenAI form: an array of messages
  std::string tools_json;            // OpenAI form: an array; empty: none
  std::string tool_choice = "auto";  // "auto", "none", "required"
  std::string json_schema;           // empty: none
  std::string grammar;               // empty: none
  bool parallel_tool_calls = false;
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  std::map<std::string, std::string> template_kwargs;  // values are JSON
};

struct ChatPrompt {
  std::string text;
  std::vector<Token> tokens;
  TokenCount last_user_position = 0;
  std::vector<std::string> extra_stops;
  std::shared_ptr<const ReplyFormat> reply_format;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as the model wrote it
};

struct ReplyMessage {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
};

// What a streamed reply grew by. tool_call_index < 0: no tool call part.
struct ReplyDelta {
  std::string content;
  std::string reasoning;
  int tool_call_index = -1;
  ToolCall tool_call;
};

// Templates, tokens and reply parsing of the loaded model. Thread-safe, no engine thread involved.
class ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // kInvalidArgument names what the template or the schema did not accept.
  virtual Result<ChatPrompt> Apply(const ChatRequest& request) const = 0;
  virtual Result<ReplyMessage> Parse(const ReplyFormat* format, const std::string& text,
                                     bool partial) const = 0;
  virtual std::vector<ReplyDelta> Diff(const ReplyMessage& before,
                                       const ReplyMessage& after) const = 0;
  // The GBNF grammar of a JSON schema. kInvalidArgument names what cannot be enforced.
  virtual Result<std::string> GrammarOfSchema(const std::string& schema) const = 0;
  // `parse_special`: control tokens in the text become tokens; `add_special`: BOS and the like.
  virtual Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const = 0;
  virtual std::string Detokenize(std::span<const Token> tokens) const = 0;
  virtual std::string Piece(Token token) const = 0;
  virtual bool IsValidToken(Token token) const = 0;
};

struct ModelInfo {
  std::string path;
  std::string name;  // display: general.name, else the file name
  std::string architecture;
  std::string family;        // "full-attention", "sliding-window", "hybrid", ...
  std::string cache_reason;  // empty when cached; else why not, for people
  std::uint64_t parameter_count = 0;
  std::uint64_t weight_bytes = 0;
  TokenCount context_tokens = 0;  // of this server
  TokenCount train_context_tokens = 0;
  int vocabulary = 0;
  int embedding = 0;
  std::string cache_type_k, cache_type_v;
  std::string cache_type_source;  // "cli", "config", "default", "backend", ...
  bool flash_attention = false;
  bool embeds = false;           // makes embeddings and no text
  ModelIdentity model_identity;  // zero until the digest is known
  StateIdentity state_identity;
  bool identity_known = false;
};

struct EngineStatus {
  int lanes = 0;
  int lanes_busy = 0;
  int queued = 0;
  int resident_sequences = 0;
  TokenCount resident_tokens = 0;
  std::uint64_t cells = 0;
  std::uint64_t cells_used = 0;
  std::uint64_t prompt_tokens_total = 0;
  std::uint64_t computed_tokens_total = 0;  // prompt tokens really prefilled
  std::uint64_t cached_l1_tokens_total = 0;
  std::uint64_t cached_l2_tokens_total = 0;
  std::uint64_t cached_l3_tokens_total = 0;
  std::uint64_t generated_tokens_total = 0;
  std::uint64_t requests_total = 0;
  std::uint64_t cancelled_total = 0;
  std::uint64_t restores_total = 0;
  std::uint64_t restores_failed_total = 0;
  std::uint64_t declined_because_recompute_faster = 0;
  std::uint64_t idle_sequences_moved_total = 0;  // to a tier below, by what their cells cost
  std::uint64_t export_bytes_total = 0;
  std::uint64_t import_bytes_total = 0;
};

struct ChangedField {
  std::string name;
  std::string before;
  std::string now;
};

// What became of a prompt's prefix, as far as it is known.
struct PrefixHistory {
  // So many leading tokens could be restored until they were removed; 0: none are known to.
  TokenCount removed_tokens = 0;
  std::string removed_by;                  // "eviction", "prune", "clear", ...
  std::chrono::nanoseconds removed_at{0};  // since the epoch
  // So many are kept, but by another model or in another state, which these fields tell apart.
  TokenCount foreign_tokens = 0;
  std::vector<ChangedField> changed;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const ModelInfo Info() const = 0;
  virtual const ChatFormat& chat() const = 0;
  // kInvalidArgument: the prompt does not fit the context (text has both numbers).
  // kResourceExhausted: the queue is full; nothing changed. kUnavailable: stopping.
  virtual Result<std::unique_ptr<Generation>> Submit(GenerateRequest request) = 0;
  virtual EngineStatus GetStatus() const = 0;
  // The embedding of `tokens`, of length 1. kUnsupported: the model makes none. kInvalidArgument:
  // they do not fit the context. Computed on the caller's thread, one at a time, never cached.
  virtual Result<std::vector<float>> Embed(std::span<const Token> /*tokens*/) {
    return MakeError(ErrorCode::kUnsupported, "the model generates text and makes no embeddings");
  }
  // Why a prompt was not found. Takes milliseconds; any thread but the engine's.
  virtual PrefixHistory FindHistory(const std::string& /*name_space*/,
                                    std::span<const Token> /*prompt*/) const {
    return {};
  }
  // Drops the state of requests that ended: no request submitted after it returns finds any of it,
  // and none of it is recorded. Waits for the engine's current step.
  virtual void ForgetResidents() {}
  // Stops accepting, cancels what runs, records what is worth it, joins the engine thread.
  virtual void Stop() = 0;
};

struct EngineOptions {
  std::string model_path;
  std::string model_alias;
  std::string chat_template_file;        // Jinja; empty: the model's own template
  TokenCount context_tokens = 0;         // 0: the model's own, at most 8192
  int threads = 0;                       // 0: physical cores
  int threads_batch = 0;                 // 0: same as threads
  int parallel = 0;                      // lanes; 0: default (4)
  int gpu_layers = -1;                   // -1: all that fit
  PlacementOptions placement;
  std::string flash_attention = "auto";  // on, off, auto
  std::string cache_type_k = "auto";
  std::string cache_type_v = "auto";
  std::string cache_type_source = "default";
  int batch_tokens = 2048;
  int ubatch_tokens = 512;
  std::vector<std::pair<std::string, float>> loras;  // path, scale
  int resident_sequences_max = -1;                   // idle sequences kept; -1: lanes
  int queue_max = 256;
  std::string digest_memo_directory;         // where weight digests are remembered; empty: nowhere
  std::function<void(float)> load_progress;  // 0..1, from the loading thread
};

// Loads the model and starts the engine thread. `cache` may be null; not owned, outlives it.
Result<std::unique_ptr<Engine>> OpenLlamaEngine(const EngineOptions& options, Cache* cache,
                                                Env* env);

}  // namespace skippy
