// From a request body to what the engine runs. Pure translation: nothing is submitted here.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/json.h"
#include "serve/openai_schema.h"

namespace skippy {

struct PreparedPrompt {
  std::vector<Token> tokens;
  TokenCount last_user_position = 0;
  std::string echo_text;  // what a choice's text begins with
};

struct OpenAiRequest {
  Endpoint endpoint = Endpoint::kChat;
  std::string model;  // as the client called it; empty: not said
  bool stream = false;
  bool include_usage = false;
  int choices_per_prompt = 1;
  std::vector<PreparedPrompt> prompts;  // chat: one
  GenerateRequest base;                 // everything but id and prompt; the seed is choice 0's
  // base.stop begins with these; what follows came from the template.
  std::size_t client_stop_count = 0;
};

// Each checks everything that can be checked without running the model, the length of the prompt
// against the context (code context_length_exceeded) included.
ApiResult<OpenAiRequest> ParseChatRequest(const Json& body, const Engine& engine);
ApiResult<OpenAiRequest> ParseCompletionRequest(const Json& body, const Engine& engine);

// A field that holds one prompt or several.
struct PromptField {
  std::string_view name;
  std::size_t prompts_max = 0;
};

// The field as a list of prompts, each a string or an array of token ids; none is empty.
ApiResult<std::vector<PreparedPrompt>> ParsePrompts(const Json& body, const PromptField& field,
                                                    const ChatFormat& chat);

// The chat request alone: messages, tools, format.
ApiResult<ChatRequest> ParseChatTemplateInput(const Json& body);

// Checks the form of `messages` and gives it as the template gets it: contents of one text part
// become that text, so that both spellings are the same prompt.
ApiResult<Json> NormalizeMessages(const Json& body);

}  // namespace skippy
