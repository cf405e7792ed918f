#include "serve/anthropic.h"

namespace skippy {
namespace {

constexpr auto kMessagesBit = static_cast<unsigned>(Endpoint::kMessages);
constexpr auto kHonoured = FieldUse::kHonoured;
constexpr auto kNoEffect = FieldUse::kNoEffect;
constexpr auto kRefused = FieldUse::kRefused;
constexpr double kInt32Max = 2147483647.0;

constexpr FieldSpec kFields[] = {
    {"model", kString, kMessagesBit, kHonoured, "echoed; the loaded model answers"},
    {"messages", kArray, kMessagesBit, kHonoured,
     "text, tool_use, tool_result and thinking blocks; a last message of the assistant is "
     "continued"},
    {"max_tokens", kInteger, kMessagesBit, kHonoured,
     "required but for count_tokens; 0: compute and record the prompt only", 0, kInt32Max},
    {"system", kString | kArray, kMessagesBit, kHonoured,
     "text blocks are joined by a line break; blocks of billing headers are left out"},
    {"stream", kBoolean, kMessagesBit, kHonoured, "server-sent events"},
    {"stop_sequences", kArray, kMessagesBit, kHonoured, "at most 32 strings"},
    {"temperature", kNumber, kMessagesBit, kHonoured, "0: greedy", 0, 100},
    {"top_p", kNumber, kMessagesBit, kHonoured, "", 0, 1},
    {"top_k", kInteger, kMessagesBit, kHonoured, "0 or less: off", -1, kInt32Max},
    {"tools", kArray, kMessagesBit, kHonoured, "with an input_schema; no tools of a server"},
    {"tool_choice", kObject, kMessagesBit, kHonoured,
     "auto, any, none, tool; disable_parallel_tool_use"},
    {"tool_choice.type", kString, kMessagesBit, kHonoured, ""},
    {"tool_choice.name", kString, kMessagesBit, kHonoured, ""},
    {"tool_choice.disable_parallel_tool_use", kBoolean, kMessagesBit, kHonoured, ""},
    {"thinking", kObject, kMessagesBit, kHonoured, "disabled turns it off where the model can"},
    {"thinking.type", kString, kMessagesBit, kHonoured, ""},
    {"thinking.budget_tokens", kInteger, kMessagesBit, kNoEffect, ""},
    {"output_config", kObject, kMessagesBit, kHonoured, ""},
    {"output_config.effort", kString, kMessagesBit, kHonoured, "reaches the template"},
    {"output_config.format", kObject, kMessagesBit, kHonoured, "json_schema"},
    {"cache_salt", kString, kMessagesBit, kHonoured,
     "requests share cached state only with equal salts; at most 256 bytes"},
    {"prompt_cache_retention", kString, kMessagesBit, kHonoured,
     "in_memory keeps the prompt off the disk"},
    {"mcp_servers", kArray, kMessagesBit, kRefused, "the server calls nobody"},
    {"container", kString | kObject, kMessagesBit, kRefused, "the server runs no code"},
    {"cache_control", kObject, kMessagesBit, kNoEffect,
     "also in blocks: every prompt is cached, and hits need no mark"},
    {"metadata", kObject, kMessagesBit, kNoEffect, ""},
    {"service_tier", kString, kMessagesBit, kNoEffect, ""},
    {"inference_geo", kString, kMessagesBit, kNoEffect, ""},
    {"context_management", kObject, kMessagesBit, kNoEffect, ""},
};

}  // namespace

std::span<const FieldSpec> MessagesFieldTable() { return kFields; }

}  // namespace skippy
