// Strategy: the first byte picks an endpoint, the rest is the body of a request to it, answered by
// the real handlers over the fake engine, streamed or not. Invariants: nothing crashes; a body that
// is not streamed is JSON; whatever is refused is a client's error; no generation is left running.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "engine/fake_engine.h"
#include "serve/endpoints.h"
#include "serve/json.h"

namespace skippy {
namespace {

constexpr TokenCount kContextTokens = 2048;

// Takes everything until the client hangs up.
class CountingSink final : public StreamSink {
 public:
  void AddTrailer(std::string /*name*/, std::string /*value*/) override {}
  bool Write(std::string_view bytes) override {
    byte_count_ += bytes.size();
    return byte_count_ < kBytesMax;
  }
  bool ClientGone() override { return byte_count_ >= kBytesMax; }

 private:
  static constexpr std::size_t kBytesMax = 1U << 20;
  std::size_t byte_count_ = 0;
};

struct World {
  World() : engine(Options()), explain(true), serving{engine, explain, true} {
    spdlog::set_level(spdlog::level::off);
  }
  static FakeEngineOptions Options() {
    FakeEngineOptions options;
    options.context_tokens = kContextTokens;
    options.reply = [](const GenerateRequest&, std::string_view prompt) {
      return std::string(prompt.substr(0, 64)) + "<call>f {\"a\": 1}</call>";
    };
    return options;
  }

  FakeEngine engine;
  ExplainLog explain;
  Serving serving;
};

HttpResponse Answer(World& world, unsigned endpoint, const HttpRequest& request) {
  switch (endpoint % 8) {
    case 0:
      return AnswerGeneration(world.serving, ChatDialect(), request);
    case 1:
      return AnswerGeneration(world.serving, CompletionsDialect(), request);
    case 2:
      return AnswerGeneration(world.serving, MessagesDialect(), request);
    case 3:
      return AnswerGeneration(world.serving, ResponsesDialect(), request);
    case 4:
      return AnswerCountTokens(world.engine, request);
    case 5:
      return AnswerTokenize(world.engine, request);
    case 6:
      return AnswerDetokenize(world.engine, request);
    default:
      return AnswerApplyTemplate(world.engine, request);
  }
}

void Run(const std::uint8_t* data, std::size_t byte_count) {
  static World* const world = new World();  // the process ends with it
  if (byte_count == 0) {
    return;
  }
  HttpRequest request;
  request.method = "POST";
  request.api_key = "key";
  request.body.assign(reinterpret_cast<const char*>(data) + 1, byte_count - 1);
  HttpResponse response = Answer(*world, data[0], request);
  SKIPPY_CHECK(response.status == 200 || (response.status >= 400 && response.status < 500),
               "a body is no reason for another status");
  if (response.stream) {
    CountingSink sink;
    response.stream(sink);
  } else {
    SKIPPY_CHECK(Json::accept(response.body), "an answer is JSON");
  }
  response = HttpResponse();
  SKIPPY_CHECK(world->engine.GetStatus().lanes_busy == 0, "a generation was left running");
}

}  // namespace
}  // namespace skippy

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count) {
  skippy::Run(data, byte_count);
  return 0;
}
