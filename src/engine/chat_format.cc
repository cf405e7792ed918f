#include "engine/chat_format.h"

#include <chat.h>
#include <common.h>
#include <json.h>
#include <llama.h>
#include <log.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "engine/reply_format.h"
#include "engine/schema_check.h"
#include "engine/token_piece.h"

namespace skippy {
namespace {

constexpr std::size_t kReasonBytesMax = 400;

Error Invalid(const std::string& text) { return MakeError(ErrorCode::kInvalidArgument, text); }

// Exceptions of templates carry excerpts over several lines.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > kReasonBytesMax) text = text.substr(0, kReasonBytesMax) + "...";
  return text;
}

common_chat_msg ToCommon(const ReplyMessage& message) {
  common_chat_msg out;
  out.role = "assistant";
  out.content = message.content;
  out.reasoning_content = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    out.tool_calls.push_back({call.name, call.arguments, call.id});
  }
  return out;
}

ToolCall FromCommon(const common_chat_tool_call& call) {
  return {call.id, call.name, call.arguments};
}

// `text` without `prefix`, or all of it when it does not begin so.
std::string Without(const std::string& prefix, const std::string& text) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

// One part that is text is the same as the text itself, so that both give the same tokens.
void SimplifyContent(common_chat_msg* message) {
  if (message->content_parts.size() != 1 || !message->content.empty()) return;
  message->content = message->content_parts.front().text;
  message->content_parts.clear();
}

Result<std::vector<common_chat_msg>> ParseMessages(const std::string& messages_json) {
  std::vector<common_chat_msg> messages =
      common_chat_msgs_parse_oaicompat(common_json::parse(messages_json));
  if (messages.empty()) return Invalid("messages: at least one is needed");
  for (common_chat_msg& message : messages) {
    if (message.contains_media()) return Invalid("messages: only text content is supported");
    SimplifyContent(&message);
  }
  return messages;
}

// A last message of the assistant is the beginning of the reply and is continued.
Status ContinueLastMessage(common_chat_templates_inputs* inputs) {
  const std::vector<common_chat_msg>& messages = inputs->messages;
  if (messages.back().role != "assistant") return {};
  if (messages.size() >= 2 && messages[messages.size() - 2].role == "assistant") {
    return Invalid("messages: two messages of the assistant at the end cannot be continued");
  }
  if (!messages.back().tool_calls.empty()) {
    return Invalid("messages: an assistant message with tool calls cannot be continued");
  }
  inputs->continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
  inputs->add_generation_prompt = false;
  return {};
}

class LlamaChatFormat final : public ChatFormat {
 public:
  LlamaChatFormat(const llama_model* model, common_chat_templates_ptr templates)
      : vocab_(llama_model_get_vocab(model)),
        templates_(std::move(templates)),
        supports_thinking_(common_chat_templates_support_enable_thinking(templates_.get())) {}

  Result<ChatPrompt> Apply(const ChatRequest& request) const override {
    if (!HasVocabulary()) {
      return Invalid("the model has no vocabulary: prompts must be token ids");
    }
    try {
      return ApplyOrThrow(request);
    } catch (const std::exception& e) {
      return Invalid("chat template: " + OneLine(e.what()));
    }
  }

  Result<ReplyMessage> Parse(const ReplyFormat* format, const std::string& text,
                             bool partial) const override {
    const auto* ours = dynamic_cast<const LlamaReplyFormat*>(format);
    if (ours == nullptr) return ReplyMessage{text, "", {}};
    try {
      const common_chat_msg parsed = common_chat_parse(text, partial, ours->parser);
      ReplyMessage message{Without(ours->continued.content, parsed.content),
                           Without(ours->continued.reasoning_content, parsed.reasoning_content),
                           {}};
      for (const auto& call : parsed.tool_calls) message.tool_calls.push_back(FromCommon(call));
      return message;
    } catch (const std::exception& e) {
      return MakeError(ErrorCode::kUnsupported, "reply: " + OneLine(e.what()));
    }
  }

  std::vector<ReplyDelta> Diff(const ReplyMessage& before,
                               const ReplyMessage& after) const override {
    std::vector<ReplyDelta> deltas;
    try {
      for (const common_chat_msg_diff& diff :
           common_chat_msg_diff::compute_diffs(ToCommon(before), ToCommon(after))) {
        ReplyDelta delta{diff.content_delta, diff.reasoning_content_delta, -1,
                         FromCommon(diff.tool_call_delta)};
        if (diff.tool_call_index != std::string::npos) {
          delta.tool_call_index = static_cast<int>(diff.tool_call_index);
        }
        deltas.push_back(std::move(delta));
      }
    } catch (const std::exception&) {
      // A later parse took something back that was already sent: nothing can be added to it.
      LogWarning("a reply was read differently than before; its next part is not sent");
      deltas.clear();
    }
    return deltas;
  }

  Result<std::string> GrammarOfSchema(const std::string& schema) const override {
    try {
      return GrammarFromSchema(schema);
    } catch (const std::exception& e) {
      return Invalid("json_schema: " + OneLine(e.what()));
    }
  }

  Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const override {
    if (!HasVocabulary()) {
      return Invalid("the model has no vocabulary: prompts must be token ids");
    }
    try {
      return common_tokenize(vocab_, std::string(text), add_special, parse_special);
    } catch (const std::exception& e) {
      return Invalid(OneLine(e.what()));
    }
  }

  std::string Detokenize(std::span<const Token> tokens) const override {
    std::vector<Token> valid;
    std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(valid),
                 [this](Token token) { return IsValidToken(token); });
    return HasVocabulary() ? common_detokenize(vocab_, valid, true) : std::string();
  }

  std::string Piece(Token token) const override {
    return IsValidToken(token) ? TokenPiece(vocab_, token, true) : std::string();
  }

  bool IsValidToken(Token token) const override {
    return token >= 0 && token < llama_vocab_n_tokens(vocab_);
  }

 private:
  // One at a time in the process: the library writes the date of every prompt through the one
  // buffer of localtime(), and a torn date would end every common prefix there.
  common_chat_params ApplyTemplates(const common_chat_templates_inputs& inputs) const {
    static Mutex mu;
    MutexLock lock(mu);
    return common_chat_templates_apply(templates_.get(), inputs);
  }

  // The library ends the process when asked for texts without one.
  bool HasVocabulary() const { return llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE; }

  Result<ChatPrompt> ApplyOrThrow(const ChatRequest& request) const {
    SKIPPY_ASSIGN_OR_RETURN(common_chat_templates_inputs inputs, MakeInputs(request));
    common_chat_params params = ApplyTemplates(inputs);
    auto format = std::make_shared<LlamaReplyFormat>();
    SKIPPY_RETURN_IF_ERROR(FillGrammar(inputs, params, format.get()));
    FillControlTokens(params, format.get());
    FillParser(inputs, params, format.get());
    ChatPrompt prompt;
    prompt.text = std::move(params.prompt);
    // The template's own BOS was taken off by the library where the tokenizer adds one.
    prompt.tokens = common_tokenize(vocab_, prompt.text, true, true);
    prompt.last_user_position = LastUserPosition(&params.message_delimiters, prompt.tokens);
    if (prompt.last_user_position < 0) {
      prompt.last_user_position = CommonWithEarlierMessages(inputs, prompt.tokens);
    }
    prompt.extra_stops = std::move(params.additional_stops);
    prompt.reply_format = std::move(format);
    return prompt;
  }

  Result<common_chat_templates_inputs> MakeInputs(const ChatRequest& request) const {
    common_chat_templates_inputs inputs;
    SKIPPY_ASSIGN_OR_RETURN(inputs.messages, ParseMessages(request.messages_json));
    if (!request.tools_json.empty()) {
      inputs.tools = common_chat_tools_parse_oaicompat(common_json::parse(request.tools_json));
    }
    inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(request.tool_choice);
    inputs.grammar = request.grammar;
    inputs.parallel_tool_calls = request.parallel_tool_calls;
    inputs.add_generation_prompt = request.add_generation_prompt;
    inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    inputs.enable_thinking = request.enable_thinking && supports_thinking_;
    inputs.chat_template_kwargs = request.template_kwargs;
    SKIPPY_RETURN_IF_ERROR(CheckTools(inputs));
    if (!request.json_schema.empty()) {
      if (!request.grammar.empty()) return Invalid("json_schema and grammar exclude each other");
      SKIPPY_RETURN_IF_ERROR(GrammarFromSchema(request.json_schema));
      // The library takes an empty schema for none at all.
      const bool any_object = common_json::parse(request.json_schema).empty();
      inputs.json_schema = any_object ? R"({"type": "object"})" : request.json_schema;
    }
    SKIPPY_RETURN_IF_ERROR(ContinueLastMessage(&inputs));
    return inputs;
  }

  static Status CheckTools(const common_chat_templates_inputs& inputs) {
    if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && inputs.tools.empty()) {
      return Invalid("tool_choice: required, but there are no tools");
    }
    if (!inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE &&
        !inputs.grammar.empty()) {
      return Invalid("grammar cannot be combined with tools");
    }
    return {};
  }

  static bool IsEnforced(const common_chat_params& params) {
    return !params.grammar.empty() && !params.grammar_lazy;
  }

  // The reply has no thinking and no marks around it: the form can hold from its first token,
  // without the fences that the library's grammar would allow.
  static bool IsPlain(const common_chat_params& params) {
    return params.thinking_end_tags.empty() && params.preserved_tokens.empty();
  }

  // What was asked for must be enforced by a grammar, whoever makes it.
  Status FillGrammar(const common_chat_templates_inputs& inputs, const common_chat_params& params,
                     LlamaReplyFormat* format) const {
    format->grammar = params.grammar;
    format->grammar_lazy = params.grammar_lazy;
    format->generation_prompt = params.generation_prompt;
    if (!inputs.grammar.empty()) {
      format->grammar = inputs.grammar;
      format->grammar_from_user = true;
      format->grammar_lazy = false;
    } else if (!inputs.json_schema.empty() && (!IsEnforced(params) || IsPlain(params))) {
      SKIPPY_ASSIGN_OR_RETURN(format->grammar, GrammarFromSchema(inputs.json_schema));
      format->grammar_from_user = true;
      format->grammar_lazy = false;
    }
    if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && format->grammar.empty()) {
      return Invalid("tool_choice: the model's chat template has no form for tool calls");
    }
    if (format->grammar_lazy && params.grammar_triggers.empty()) {
      return Invalid("chat template: a grammar that starts later has no trigger");
    }
    return {};
  }

  void FillControlTokens(const common_chat_params& params, LlamaReplyFormat* format) const {
    for (const std::string& text : params.preserved_tokens) {
      if (const auto token = SingleToken(text)) format->preserved_tokens.push_back(*token);
    }
    for (const common_grammar_trigger& trigger : params.grammar_triggers) {
      const auto token = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD
                             ? SingleToken(trigger.value)
                             : std::nullopt;
      if (token) {
        format->triggers.push_back({COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN, trigger.value, *token});
        format->preserved_tokens.push_back(*token);
      } else {
        format->triggers.push_back(trigger);
      }
    }
    if (params.thinking_end_tags.empty()) return;
    format->thinking_start = common_tokenize(vocab_, params.thinking_start_tag, false, true);
    for (const std::string& tag : params.thinking_end_tags) {
      if (!tag.empty()) format->thinking_ends.push_back(common_tokenize(vocab_, tag, false, true));
    }
  }

  static void FillParser(const common_chat_templates_inputs& inputs,
                         const common_chat_params& params, LlamaReplyFormat* format) {
    format->parser = common_chat_parser_params(params);
    format->parser.reasoning_format = inputs.reasoning_format;
    format->parser.parse_tool_calls = inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE;
    if (!params.parser.empty()) format->parser.parser.load(params.parser);
    if (inputs.continue_final_message == COMMON_CHAT_CONTINUATION_NONE) return;
    format->parser.is_continuation = true;
    format->continued = common_chat_parse("", true, format->parser);
  }

  std::optional<Token> SingleToken(const std::string& text) const {
    const std::vector<Token> tokens = common_tokenize(vocab_, text, false, true);
    return tokens.size() == 1 ? std::optional<Token>(tokens.front()) : std::nullopt;
  }

  // By the marks that the template puts before messages; -1 when it has none that are known.
  TokenCount LastUserPosition(common_chat_msg_delimiters* delimiters,
                              const std::vector<Token>& tokens) const {
    std::erase_if(delimiters->delimiters,
                  [](const auto& delimiter) { return delimiter.delimiter.empty(); });
    delimiters->tokenize(vocab_);
    return delimiters->split(tokens).last_user_message_pos();
  }

  // What the prompt has in common with that of the messages before the last user message. 0 when
  // these alone are nothing that the template accepts.
  TokenCount CommonWithEarlierMessages(common_chat_templates_inputs inputs,
                                       const std::vector<Token>& tokens) const {
    auto& messages = inputs.messages;
    while (!messages.empty() && messages.back().role != "user") messages.pop_back();
    if (messages.size() < 2) return 0;
    messages.pop_back();
    inputs.add_generation_prompt = false;
    inputs.continue_final_message = COMMON_CHAT_CONTINUATION_NONE;
    try {
      const std::string text = ApplyTemplates(inputs).prompt;
      const std::vector<Token> earlier = common_tokenize(vocab_, text, true, true);
      const auto [end, ignored] =
          std::mismatch(tokens.begin(), tokens.end(), earlier.begin(), earlier.end());
      return static_cast<TokenCount>(end - tokens.begin());
    } catch (const std::exception&) {
      return 0;
    }
  }

  const llama_vocab* const vocab_;
  const common_chat_templates_ptr templates_;
  const bool supports_thinking_;
};

}  // namespace

Result<std::unique_ptr<ChatFormat>> MakeChatFormat(const llama_model* model,
                                                   const std::string& template_override) {
  // The library's own log would show text of prompts and replies.
  common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);
  try {
    common_chat_templates_ptr templates = common_chat_templates_init(model, template_override);
    return std::unique_ptr<ChatFormat>(
        std::make_unique<LlamaChatFormat>(model, std::move(templates)));
  } catch (const std::exception& e) {
    return Invalid("chat template: " + OneLine(e.what()));
  }
}

}  // namespace skippy
