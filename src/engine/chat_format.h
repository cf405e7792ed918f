// Chat templates, tokens and reply parsing of a loaded model, by llama.cpp's common library.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "skippy/result.h"

struct llama_model;

namespace skippy {

// `model` is not owned and outlives the result. `template_override`: a Jinja template that
// replaces the model's own; empty: none. kInvalidArgument when the template cannot be parsed; a
// model without any gets ChatML, as in llama-server.
Result<std::unique_ptr<ChatFormat>> MakeChatFormat(const llama_model* model,
                                                   const std::string& template_override);

}  // namespace skippy
