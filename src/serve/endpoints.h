// The answers of the API, one function per endpoint. Each may run on many threads at once.
#pragma once

#include "engine/engine.h"
#include "serve/http_types.h"
#include "serve/openai_schema.h"

namespace skippy {

// Chat completions and completions, plain and streamed. The engine outlives the response's stream.
HttpResponse AnswerGeneration(Engine& engine, Endpoint endpoint, const HttpRequest& request);

// The list, or with the path parameter "model" that one.
HttpResponse AnswerModels(Engine& engine, const HttpRequest& request);

// llama-server's helpers: {"content"} -> {"tokens"}, {"tokens"} -> {"content"}, a chat request ->
// {"prompt"}.
HttpResponse AnswerTokenize(Engine& engine, const HttpRequest& request);
HttpResponse AnswerDetokenize(Engine& engine, const HttpRequest& request);
HttpResponse AnswerApplyTemplate(Engine& engine, const HttpRequest& request);

// "chatcmpl-" and the like followed by 24 random hexadecimal digits.
std::string NewRequestId(std::string_view prefix);

}  // namespace skippy
