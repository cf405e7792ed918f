// Every request field of every API, in the order of the reference page.
#include "serve/openai_schema.h"

namespace skippy {
namespace {

constexpr auto kChat = static_cast<unsigned>(Endpoint::kChat);
constexpr auto kText = static_cast<unsigned>(Endpoint::kCompletions);
constexpr auto kMessages = static_cast<unsigned>(Endpoint::kMessages);
constexpr auto kResponses = static_cast<unsigned>(Endpoint::kResponses);
constexpr unsigned kOpenAi = kChat | kText | kResponses;
constexpr auto kEmbeddings = static_cast<unsigned>(Endpoint::kEmbeddings);
constexpr unsigned kGenerating = kOpenAi | kMessages;
constexpr unsigned kAll = kGenerating | kEmbeddings;
constexpr auto kHonoured = FieldUse::kHonoured;
constexpr auto kNoEffect = FieldUse::kNoEffect;
constexpr auto kRefused = FieldUse::kRefused;
constexpr double kInt32Max = 2147483647.0;

constexpr std::string_view kPrewarm = "0: compute and record the prompt only";
constexpr std::string_view kNothingKept = "the server keeps no responses: send the whole input";
constexpr std::string_view kEffort = "none: no thinking; others reach the template";

constexpr FieldSpec kFields[] = {
    {"model", kString, kAll, kHonoured, "echoed; the loaded model answers"},
    {"messages", kArray, kChat, kHonoured, "text only"},
    {"messages", kArray, kMessages, kHonoured,
     "text, tool_use, tool_result and thinking blocks; a last message of the assistant is "
     "continued"},
    {"system", kString | kArray, kMessages, kHonoured,
     "text blocks are joined by a line break; blocks of billing headers are left out"},
    {"prompt", kString | kArray, kText, kHonoured, "a string, token ids, or an array of either"},
    {"input", kString | kArray, kResponses, kHonoured,
     "text; messages, function_call, function_call_output and reasoning items"},
    {"input", kString | kArray, kEmbeddings, kHonoured,
     "a string, token ids, or an array of either"},
    {"encoding_format", kString, kEmbeddings, kHonoured, "float, base64"},
    {"dimensions", kInteger, kEmbeddings, kRefused, "the model decides", 1, kInt32Max},
    {"instructions", kString, kResponses, kHonoured, "the system message"},
    {"stream", kBoolean, kGenerating, kHonoured, "server-sent events"},
    {"stream_options", kObject, kBothEndpoints, kHonoured, ""},
    {"stream_options.include_usage", kBoolean, kBothEndpoints, kHonoured,
     "one last chunk with usage and no choices"},
    {"max_tokens", kInteger, kBothEndpoints, kHonoured,
     "-1: until the context is full; 0: compute and record the prompt only", -1, kInt32Max},
    {"max_tokens", kInteger, kMessages, kHonoured,
     "required but for count_tokens; 0: compute and record the prompt only", 0, kInt32Max},
    {"max_completion_tokens", kInteger, kBothEndpoints, kHonoured, "wins over max_tokens", -1,
     kInt32Max},
    {"max_output_tokens", kInteger, kResponses, kHonoured, kPrewarm, 0, kInt32Max},
    {"n_predict", kInteger, kBothEndpoints, kHonoured, "max_tokens by its llama-server name", -1,
     kInt32Max},
    {"n", kInteger, kBothEndpoints, kHonoured, "choices per prompt", 1, 64},
    {"best_of", kInteger, kText, kRefused, "only best_of = n can be answered", 1, 64},
    {"stop", kString | kArray, kBothEndpoints, kHonoured, "at most 32 strings"},
    {"stop_sequences", kArray, kMessages, kHonoured, "at most 32 strings"},
    {"seed", kInteger, kBothEndpoints, kHonoured, "choice i uses seed + i; negative: random"},
    {"temperature", kNumber, kGenerating, kHonoured, "0: greedy", 0, 100},
    {"top_p", kNumber, kGenerating, kHonoured, "", 0, 1},
    {"top_k", kInteger, kBothEndpoints | kMessages, kHonoured, "0 or less: off", -1, kInt32Max},
    {"min_p", kNumber, kBothEndpoints, kHonoured, "", 0, 1},
    {"typical_p", kNumber, kBothEndpoints, kHonoured, "", 0, 1},
    {"frequency_penalty", kNumber, kBothEndpoints, kHonoured, "", -2, 2},
    {"presence_penalty", kNumber, kBothEndpoints, kHonoured, "", -2, 2},
    {"repeat_penalty", kNumber, kBothEndpoints, kHonoured, "1: off", 0, 10},
    {"repeat_last_n", kInteger, kBothEndpoints, kHonoured, "-1: the whole context", -1, kInt32Max},
    {"logit_bias", kObject | kArray, kBothEndpoints, kHonoured,
     "{\"id\": bias} or [[id, bias]]; -100 forbids the token"},
    {"ignore_eos", kBoolean, kBothEndpoints, kHonoured, ""},
    {"logprobs", kBoolean, kChat, kHonoured, ""},
    {"top_logprobs", kInteger, kChat, kHonoured, "needs logprobs", 0, 20},
    {"top_logprobs", kInteger, kResponses, kRefused, "use chat completions", 0, 20},
    {"logprobs", kInteger, kText, kHonoured, "how many tokens are shown beside the chosen one", 0,
     20},
    {"echo", kBoolean, kText, kHonoured, "not together with logprobs"},
    {"suffix", kString, kText, kRefused, "fill-in-the-middle is not offered"},
    {"grammar", kString, kBothEndpoints, kHonoured, "GBNF; not together with a schema"},
    {"response_format", kObject, kBothEndpoints, kHonoured, "text, json_object, json_schema"},
    {"json_schema", kObject, kBothEndpoints, kHonoured,
     "as response_format, by llama-server's name"},
    {"text", kObject, kResponses, kHonoured, ""},
    {"text.format", kObject, kResponses, kHonoured, "text, json_object, json_schema"},
    {"tools", kArray, kGenerating & ~kText, kHonoured,
     "functions that the client runs; no tools of a server"},
    {"tool_choice", kString | kObject, kChat | kResponses, kHonoured,
     "none, auto, required, or a function, which is then offered alone"},
    {"tool_choice", kObject, kMessages, kHonoured,
     "auto, any, none, tool; disable_parallel_tool_use"},
    {"tool_choice.type", kString, kMessages, kHonoured, ""},
    {"tool_choice.name", kString, kMessages, kHonoured, ""},
    {"tool_choice.disable_parallel_tool_use", kBoolean, kMessages, kHonoured, ""},
    {"parallel_tool_calls", kBoolean, kChat | kResponses, kHonoured, ""},
    {"functions", kArray, kChat, kRefused, "use tools"},
    {"function_call", kString | kObject, kChat, kRefused, "use tool_choice"},
    {"reasoning_effort", kString, kChat, kHonoured, kEffort},
    {"reasoning", kObject, kResponses, kHonoured, ""},
    {"reasoning.effort", kString, kResponses, kHonoured, kEffort},
    {"thinking", kObject, kMessages, kHonoured, "disabled turns it off where the model can"},
    {"thinking.type", kString, kMessages, kHonoured, ""},
    {"output_config", kObject, kMessages, kHonoured, ""},
    {"output_config.effort", kString, kMessages, kHonoured, "reaches the template"},
    {"output_config.format", kObject, kMessages, kHonoured, "json_schema"},
    {"chat_template_kwargs", kObject, kChat, kHonoured, "reach the template"},
    {"add_generation_prompt", kBoolean, kChat, kHonoured, ""},
    {"cache_prompt", kBoolean, kBothEndpoints, kHonoured, "false: compute the whole prompt"},
    {"cache_salt", kString, kGenerating, kHonoured,
     "requests share cached state only with equal salts; at most 256 bytes"},
    {"prompt_cache_retention", kString, kGenerating, kHonoured,
     "24h: evicted last for that long; in_memory (or in-memory): kept off the disk"},
    {"prompt_cache_key", kString, kOpenAi, kHonoured,
     "evicted last for an hour; prefixes are shared whatever the key; cache_salt isolates"},
    {"audio", kObject, kChat, kRefused, "the server answers in text"},
    {"modalities", kArray, kChat, kRefused, "the server answers in text"},
    {"moderation", kObject, kChat | kResponses, kRefused, "the server moderates nothing"},
    {"web_search_options", kObject, kChat, kRefused, "the server calls nobody"},
    {"lora", kArray | kObject, kBothEndpoints, kRefused, "adapters are chosen at start: --lora"},
    {"previous_response_id", kString, kResponses, kRefused, kNothingKept},
    {"conversation", kString | kObject, kResponses, kRefused, kNothingKept},
    {"prompt", kObject, kResponses, kRefused, "the server keeps no prompts"},
    {"background", kBoolean, kResponses, kRefused, "the server answers on the connection"},
    {"mcp_servers", kArray, kMessages, kRefused, "the server calls nobody"},
    {"container", kString | kObject, kMessages, kRefused, "the server runs no code"},
    {"output_format", kObject, kMessages, kRefused, "use output_config.format"},
    {"cache_control", kObject, kMessages, kNoEffect,
     "also in blocks: every prompt is cached, and hits need no mark"},
    {"user", kString, kOpenAi | kEmbeddings, kNoEffect, ""},
    {"safety_identifier", kString, kOpenAi, kNoEffect, ""},
    {"metadata", kObject, kGenerating, kNoEffect, ""},
    {"store", kBoolean, kOpenAi, kNoEffect, "nothing is kept"},
    {"service_tier", kString, kGenerating, kNoEffect, ""},
    {"verbosity", kString, kChat, kNoEffect, ""},
    {"text.verbosity", kString, kResponses, kNoEffect, ""},
    {"prediction", kObject, kChat, kNoEffect, ""},
    {"stream_options.include_obfuscation", kBoolean, kBothEndpoints, kNoEffect, ""},
    {"stream_options", kObject, kResponses, kNoEffect, "usage is always sent"},
    {"include", kArray, kResponses, kNoEffect, ""},
    {"truncation", kString, kResponses, kNoEffect, "a prompt that is too long is refused"},
    {"max_tool_calls", kInteger, kResponses, kNoEffect, ""},
    {"thinking.budget_tokens", kInteger, kMessages, kNoEffect, ""},
    {"inference_geo", kString, kMessages, kNoEffect, ""},
    {"context_management", kObject | kArray, kMessages | kResponses, kNoEffect, ""},
    {"prompt_cache_options", kObject, kChat | kResponses, kNoEffect,
     "every prompt is cached, and hits need no breakpoint"},
    {"reasoning.summary", kString, kResponses, kNoEffect, "reasoning is given as it is"},
    {"diagnostics", kObject, kMessages, kNoEffect, "see Explanations"},
    {"speed", kString, kMessages, kNoEffect, ""},
};

}  // namespace

std::span<const FieldSpec> FieldTable() { return kFields; }

}  // namespace skippy
