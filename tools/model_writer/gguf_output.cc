#include "model_writer/gguf_output.h"

#include <cstdio>

#include "base/check.h"

namespace skippy {

void GgufOutput::AddTensor(const std::string& name, ggml_type type,
                           const std::vector<std::int64_t>& shape,
                           const std::function<void(std::span<float>)>& fill) {
  std::size_t value_count = 1;
  for (const std::int64_t extent : shape) value_count *= static_cast<std::size_t>(extent);
  SKIPPY_CHECK(shape[0] % ggml_blck_size(type) == 0, name);
  std::vector<float> values(value_count);
  fill(values);

  const std::size_t byte_count = ggml_row_size(type, shape[0]) * (value_count / shape[0]);
  const ggml_init_params params = {byte_count + 2 * ggml_tensor_overhead(), nullptr, false};
  GgmlPtr context(ggml_init(params));
  ggml_tensor* tensor =
      ggml_new_tensor(context.get(), type, static_cast<int>(shape.size()), shape.data());
  ggml_set_name(tensor, name.c_str());
  ggml_quantize_chunk(type, values.data(), tensor->data, 0,
                      static_cast<std::int64_t>(value_count) / shape[0], shape[0], nullptr);
  gguf_add_tensor(metadata_.get(), tensor);
  tensors_.push_back(std::move(context));
}

Status GgufOutput::Write(const std::string& path) const {
  if (gguf_write_to_file(metadata_.get(), path.c_str(), false)) return {};
  std::remove(path.c_str());
  return MakeError(ErrorCode::kIo, "cannot write " + path);
}

Result<GgufPtr> ReadGguf(const std::string& path, GgmlPtr* tensors) {
  ggml_context* context = nullptr;
  const gguf_init_params params = {tensors == nullptr, tensors == nullptr ? nullptr : &context};
  GgufPtr gguf(gguf_init_from_file(path.c_str(), params));
  if (gguf == nullptr) {
    return MakeError(ErrorCode::kCorrupt, path + " cannot be read as a GGUF file");
  }
  if (tensors != nullptr) tensors->reset(context);
  return gguf;
}

}  // namespace skippy
