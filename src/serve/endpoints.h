// The answers of the API, one function per endpoint. Each may run on many threads at once.
#pragma once

#include "engine/engine.h"
#include "serve/dialect.h"
#include "serve/explain_log.h"
#include "serve/http_types.h"

namespace skippy {

// What endpoints work with. Outlives every response's stream.
struct Serving {
  Engine& engine;
  ExplainLog& explain;
  bool isolate_by_key = false;  // see ServerOptions
};

// A generation in any dialect, plain and streamed.
HttpResponse AnswerGeneration(const Serving& serving, const Dialect& dialect,
                              const HttpRequest& request);

// Why the request of the path parameter "request" was cached as far as it was.
HttpResponse AnswerExplain(const Serving& serving, const HttpRequest& request);

// How many tokens the prompt of a Messages request has: {"input_tokens"}.
HttpResponse AnswerCountTokens(Engine& engine, const HttpRequest& request);

// The list, or with the path parameter "model" that one.
HttpResponse AnswerModels(Engine& engine, const HttpRequest& request);

// OpenAI embeddings, uncached; 501 when the model makes none.
HttpResponse AnswerEmbeddings(Engine& engine, const HttpRequest& request);

// llama-server's helpers: {"content"} -> {"tokens"}, {"tokens"} -> {"content"}, a chat request ->
// {"prompt"}.
HttpResponse AnswerTokenize(Engine& engine, const HttpRequest& request);
HttpResponse AnswerDetokenize(Engine& engine, const HttpRequest& request);
HttpResponse AnswerApplyTemplate(Engine& engine, const HttpRequest& request);

// "chatcmpl-" and the like followed by 24 random hexadecimal digits.
std::string NewRequestId(std::string_view prefix);

}  // namespace skippy
