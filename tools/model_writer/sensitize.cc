#include "model_writer/sensitize.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "model_writer/gguf_output.h"

namespace skippy {
namespace {

constexpr float kMatrixFactor = 8.0F;
constexpr float kNormShift = 1.0F;

std::vector<float> ReadValues(const ggml_tensor* tensor) {
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
  } else {
    ggml_get_type_traits(tensor->type)
        ->to_float(tensor->data, values.data(), ggml_nelements(tensor));
  }
  return values;
}

void WriteValues(const std::vector<float>& values, ggml_tensor* tensor) {
  ggml_quantize_chunk(tensor->type, values.data(), tensor->data, 0, ggml_nrows(tensor),
                      tensor->ne[0], nullptr);
}

void Sensitize(ggml_tensor* tensor) {
  const std::string_view name = ggml_get_name(tensor);
  if (!name.ends_with(".weight")) return;
  const bool is_norm = name.find("norm") != std::string_view::npos;
  if (!is_norm && ggml_n_dims(tensor) != 2) return;
  std::vector<float> values = ReadValues(tensor);
  for (float& value : values) value = is_norm ? value + kNormShift : value * kMatrixFactor;
  WriteValues(values, tensor);
}

}  // namespace

Status SensitizeModel(const std::string& input, const std::string& output) {
  GgmlPtr tensors;
  SKIPPY_ASSIGN_OR_RETURN(const GgufPtr source, ReadGguf(input, &tensors));
  GgufOutput target;
  gguf_set_kv(target.metadata(), source.get());
  for (std::int64_t i = 0; i < gguf_get_n_tensors(source.get()); ++i) {
    ggml_tensor* tensor = ggml_get_tensor(tensors.get(), gguf_get_tensor_name(source.get(), i));
    Sensitize(tensor);
    gguf_add_tensor(target.metadata(), tensor);
  }
  return target.Write(output);
}

}  // namespace skippy
