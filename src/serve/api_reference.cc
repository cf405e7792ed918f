#include "serve/api_reference.h"

#include <cmath>
#include <string_view>

#include "serve/openai_schema.h"

namespace skippy {
namespace {

constexpr std::string_view kHead =
    R"(# HTTP API

<!-- Generated from the field tables in src/serve/. Regenerate with
     SKIPPY_UPDATE_DOCS=1 serve_test --gtest_filter='ApiReference*' -->

`skippy serve` answers on one port:

| method and path | what |
|---|---|
| `POST /v1/chat/completions` | OpenAI chat completions |
| `POST /v1/completions` | OpenAI completions |
| `POST /v1/responses` | OpenAI responses; nothing is kept between them |
| `POST /v1/messages` | Anthropic messages |
| `POST /v1/messages/count_tokens` | the length of such a request's prompt |
| `POST /v1/embeddings` | when the model's file names a pooling type, never cached; else 501 |
| `GET /v1/models`, `GET /v1/models/ID` | the loaded model |
| `GET /v1/cache/explain/ID` | how far one of the last 256 requests was cached, and why |
| `POST /tokenize`, `/detokenize`, `/apply-template` | llama-server's helpers |
| `GET /health` | 200 when the model is loaded, 503 before; asks for no key |

A key, where the server has any, is taken from `Authorization: Bearer KEY` or `x-api-key: KEY`. No
header that would let web pages of other origins call the server is sent. With `--ssl-cert-file` and
`--ssl-key-file` the port speaks TLS.

Fields that a table does not name are ignored. A field of a wrong type or out of its range is
answered with 400 and its name, as is a prompt that does not fit the context
(`context_length_exceeded`, with both numbers).

## Where the cache shows

- Chat completions, completions: `usage.prompt_tokens_details` has `cached_tokens`, read from the
  cache, and `cache_write_tokens`, recorded.
- Responses: the same two in `usage.input_tokens_details`.
- Messages: `usage.cache_read_input_tokens` and `usage.cache_creation_input_tokens`; these and
  `input_tokens` add up to the prompt. In a stream, `message_start` has them as they are when the
  prompt is computed, `message_delta` as they are at the end.

Every answer also has `timings` (in a stream, its last chunks): the request's id, tokens from each
tier (`cached_l1`, `cached_l2`, `cached_l3`), `computed` and `generated` ones, milliseconds in the
queue, restoring, computing the prompt and decoding. Every answer has the header `X-Request-Id`;
`X-Skippy-Cache` has the same figures, in a stream as a trailer: a header that follows the body.

256 requests are served at a time; more are answered 429 with `Retry-After`. A body may have 64 MiB.
A request must arrive within two minutes, however slowly it trickles in, and within five seconds
while others wait for a thread: then it is answered 408, or the connection ends.

A request with `max_tokens: 0` (`max_output_tokens: 0`) prewarms: it computes and records the
prompt and is answered without text.

## Explanations

`GET /v1/cache/explain/ID`, or `skippy kv-cache explain ID`, says where the cached prefix of one of
the last 256 requests ended and why, what came from which tier, and an estimate of the milliseconds
saved. `prefix.reason` is one of

- `complete`: all but the last token was found.
- `new_text`: what follows was not asked before.
- `diverged`: the nearest recent request goes on differently. `text_before`, `text_earlier` and
  `text_now` show both sides; `hint` says what to move when a date, a time, an id or a number is
  what differs.
- `removed`: more was kept until `removed.at` (seconds since the epoch) and went by `removed.by`:
  `eviction`, `prune`, `clear`, `damage` or `dropped`.
- `identity_changed`: more is kept for another model or other settings;
  `identity_changed.changed` names each field, before and now.
- `recompute_faster`: more was found in the cache, `declined_tokens` of it, and computing them was
  estimated to be faster than restoring them.
- `below_minimum`: a recent request has fewer than 32 more tokens in common; state is used from 32
  on.
- `not_kept`: a recent request has more in common, but it is no longer there.
- `never_seen`: nothing recent begins like this.
- `not_asked`: `cache_prompt: false`.

The text stays in memory, of the last 64 prompts at most, and ends with the process. With
`--no-explain-text` explanations quote nothing.

## Who shares what

`prompt_cache_retention: "24h"` keeps a prompt, for 24 hours after each such request, behind
everything that nobody asked to keep: RAM and disk evict it last, also after a restart.
`in_memory` keeps it off the disk. `prompt_cache_key` does the same as `24h` for one hour, and of
equally good resident sequences the one of the same key is gone on with. Budgets are as hard as
ever: when everything is to be kept, the least recently used of it leaves.

The state of a prompt is shared by all who send the same beginning, whatever their
`prompt_cache_key`. Whether a prompt is cached can be seen from `cached_tokens` and measured by the
time to the first token: whoever can send requests can find out, prefix by prefix, what others have
asked. Two things close this side channel, each at the price of computing and keeping a common
prefix once for each party: different values of `cache_salt`, chosen by the clients, and
`--cache-isolation key`, by which requests with different API keys share nothing (off by default).
)";

struct TypeName {
  FieldType type;
  std::string_view name;
};
constexpr TypeName kTypeNames[] = {{kBoolean, "boolean"}, {kInteger, "integer"},
                                   {kNumber, "number"},   {kString, "string"},
                                   {kArray, "array"},     {kObject, "object"}};

std::string Number(double number) { return std::to_string(static_cast<long long>(number)); }

std::string Type(const FieldSpec& field) {
  constexpr double kInt32Max = 2147483647.0;
  std::string text;
  for (const TypeName& known : kTypeNames) {
    if ((field.types & known.type) != 0) {
      text += (text.empty() ? "" : " or ") + std::string(known.name);
    }
  }
  if (std::isinf(field.min) || std::isinf(field.max)) {
    return text;
  }
  return text + (field.max == kInt32Max ? ", at least " + Number(field.min)
                                        : ", " + Number(field.min) + " to " + Number(field.max));
}

std::string_view Use(FieldUse use) {
  switch (use) {
    case FieldUse::kHonoured:
      return "honoured";
    case FieldUse::kNoEffect:
      return "accepted, no effect";
    case FieldUse::kRefused:
      return "refused";
  }
  return "";
}

std::string Section(std::string_view title, Endpoint endpoint) {
  std::string text =
      "\n## " + std::string(title) + "\n\n| field | value | | |\n|---|---|---|---|\n";
  for (const FieldSpec& field : FieldTable()) {
    if ((field.endpoints & static_cast<unsigned>(endpoint)) != 0) {
      text += "| `" + std::string(field.name) + "` | " + Type(field) + " | " +
              std::string(Use(field.use)) + " | " + std::string(field.note) + " |\n";
    }
  }
  return text;
}

}  // namespace

std::string ApiReferenceMarkdown() {
  return std::string(kHead) + Section("Chat completions", Endpoint::kChat) +
         Section("Completions", Endpoint::kCompletions) +
         Section("Responses", Endpoint::kResponses) + Section("Messages", Endpoint::kMessages) +
         Section("Embeddings", Endpoint::kEmbeddings);
}

}  // namespace skippy
