// The Engine of a model that makes embeddings: texts in, vectors out, nothing kept between calls.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "engine/gguf_files.h"

namespace skippy {

// Errors as OpenLlamaEngine. kUnsupported for models that rank.
Result<std::unique_ptr<Engine>> OpenEmbeddingEngine(const EngineOptions& options,
                                                    EmbeddingPooling pooling, Env* env);

}  // namespace skippy
