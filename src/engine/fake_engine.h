// A deterministic engine without a model, for tests of what lies above the Engine interface. A
// token is a byte. What a prompt is answered with is a function of the prompt; which prefixes are
// "cached" follows from the requests before. Nothing depends on time: tests hold and release
// tokens and wait for conditions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace skippy {

struct FakeEngineOptions {
  TokenCount context_tokens = 4096;
  int queue_max = 256;  // live generations; Submit refuses more
  std::string model_name = "fake-bytes";
  // The whole reply, before max_tokens and stop strings. Null: the prompt's own text.
  std::function<std::string(const GenerateRequest& request, std::string_view prompt)> reply;
};

struct FakeEngineState;

// Thread-safe. Generations may outlive it.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options = {});
  ~FakeEngine() override;

  const ModelInfo Info() const override;
  const ChatFormat& chat() const override;
  Result<std::unique_ptr<Generation>> Submit(GenerateRequest request) override;
  EngineStatus GetStatus() const override;
  void Stop() override;

  // Every generation waits before its next event until ReleaseEvents.
  void HoldEvents();
  void ReleaseEvents();
  // The tier (1, 2 or 3) that cached tokens are reported for from now on.
  void SetCachedTier(int tier);
  // Every generation from now on ends with `error` after `token_count` tokens.
  void FailAfter(TokenCount token_count, Error error);

  // Wait for a condition; false when it did not come true in time.
  bool WaitForRunning(int count, std::chrono::milliseconds timeout);
  bool WaitForCancelled(std::uint64_t count, std::chrono::milliseconds timeout);

  // What the last Submit and the last ChatFormat::Apply were given.
  std::optional<GenerateRequest> last_request() const;
  std::optional<ChatRequest> last_chat_request() const;

 private:
  const std::shared_ptr<FakeEngineState> state_;
  const std::unique_ptr<ChatFormat> chat_;
};

}  // namespace skippy
