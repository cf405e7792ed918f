// What a chat template says about the reply, in llama.cpp's terms. Private to engine/.
#pragma once

#include <chat.h>
#include <common.h>

#include <string>
#include <vector>

#include "engine/engine.h"

namespace skippy {

struct LlamaReplyFormat final : ReplyFormat {
  std::string grammar;
  bool grammar_lazy = false;  // the grammar starts at a trigger
  // The grammar is the caller's own: it holds from the first token of the reply. Otherwise it was
  // made for a tool call or a schema and covers what the template has already written.
  bool grammar_from_user = false;
  std::string generation_prompt;                 // what the template wrote of the reply
  std::vector<common_grammar_trigger> triggers;  // words that are one token are token triggers
  std::vector<llama_token> preserved_tokens;     // control tokens that stay visible in the text
  // Between these tags the model thinks: a lazy grammar does not start there.
  std::vector<llama_token> thinking_start;
  std::vector<std::vector<llama_token>> thinking_ends;
  common_chat_parser_params parser;
  common_chat_msg continued;  // what of the reply the prompt already has; not part of the answer
};

}  // namespace skippy
