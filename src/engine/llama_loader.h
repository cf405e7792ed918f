// Turns engine options into a loaded model with its context, and says what was decided on the way.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/family.h"
#include "engine/idle_cost.h"
#include "engine/llama_context.h"
#include "index/identity.h"
#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

struct LoadedLlama {
  std::unique_ptr<LlamaContext> context;
  FamilyInfo family;
  ModelInfo info;                        // identities not known yet
  StateFields state_fields;              // meaningful for cacheable families
  std::vector<std::string> model_files;  // every shard
  std::vector<std::string> adapter_files;
  std::vector<float> adapter_scales;
  int lanes = 0;
  int residents_max = 0;
  // Of families with attention rows whose K and V lie in host memory.
  std::optional<AttentionShape> attention;
};

// A model that makes embeddings. Its context has no state between calls.
struct LoadedEmbedder {
  LlamaModelPtr model;
  LlamaContextPtr context;  // destroyed before the model
  ModelInfo info;
};

// Errors as LoadLlama.
Result<LoadedEmbedder> LoadEmbedder(const EngineOptions& options, Env* env);

// Loads, builds the context and computes one token. kNotFound, kIo, kInvalidArgument or kCorrupt
// name the file or the option; kUnsupported what this server does not run. The calling thread owns
// the context until another one adopts it.
Result<LoadedLlama> LoadLlama(const EngineOptions& options, Env* env);

}  // namespace skippy
