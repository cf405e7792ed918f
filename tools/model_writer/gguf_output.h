// A GGUF file while it is put together: metadata and tensors in memory, written once.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skippy/result.h"

namespace skippy {

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
  void operator()(ggml_context* context) const { ggml_free(context); }
};
using GgufPtr = std::unique_ptr<gguf_context, GgufDeleter>;
using GgmlPtr = std::unique_ptr<ggml_context, GgufDeleter>;

// Not thread-safe.
class GgufOutput {
 public:
  GgufOutput() : metadata_(gguf_init_empty()) {}

  gguf_context* metadata() { return metadata_.get(); }

  // A tensor of `type` whose values `fill` writes as floats, row after row. `type` must divide the
  // rows into whole blocks.
  void AddTensor(const std::string& name, ggml_type type, const std::vector<std::int64_t>& shape,
                 const std::function<void(std::span<float>)>& fill);

  // kIo when the file cannot be written in full; nothing is left behind then.
  Status Write(const std::string& path) const;

 private:
  GgufPtr metadata_;
  std::vector<GgmlPtr> tensors_;
};

// Metadata only, or with all tensors when `tensors` is not null. kCorrupt: not a GGUF file.
Result<GgufPtr> ReadGguf(const std::string& path, GgmlPtr* tensors);

}  // namespace skippy
