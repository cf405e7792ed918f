#include "generated_model.h"

#include <llama.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "engine/test_model.h"
#include "model_writer/gguf_output.h"
#include "model_writer/sensitize.h"

namespace skippy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSeed = "20260731";

fs::path NewDirectory(std::string_view architecture) {
  const fs::path path = fs::temp_directory_path() / ("skippy-arch-" + std::to_string(::getpid()) +
                                                     "-" + std::string(architecture));
  fs::create_directories(path);
  return path;
}

Result<GeneratedModel> Describe(const fs::path& path) {
  GeneratedModel model{path.string(), path.stem().string(), {}, 0};
  GgmlPtr tensors;
  SKIPPY_ASSIGN_OR_RETURN(const GgufPtr file, ReadGguf(model.path, &tensors));
  if (const ggml_tensor* positions = ggml_get_tensor(tensors.get(), "position_embd.weight")) {
    model.positions_max = static_cast<TokenCount>(positions->ne[1]);
  }
  const ModelPtr loaded = LoadTestModel(model.path);
  if (!loaded) {
    return MakeError(ErrorCode::kCorrupt, model.path + " cannot be loaded");
  }
  model.family = ClassifyFamily(ReadFamilyFacts(loaded.get()));
  return model;
}

}  // namespace

GeneratedModels::GeneratedModels(std::string_view architecture)
    : architecture_(architecture), directory_(NewDirectory(architecture)) {}

GeneratedModels::~GeneratedModels() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

Result<std::vector<GeneratedModel>> GeneratedModels::Write() {
  const fs::path models = directory_ / "models";
  fs::create_directories(models);
  const std::string command = std::string("'") + SKIPPY_MODEL_GENERATOR + "' -a " + architecture_ +
                              " -s " + kSeed + " -o '" + models.string() + "' > '" +
                              Sub("generator.log") + "' 2>&1";
  if (const int status = std::system(command.c_str()); status != 0) {
    return MakeError(ErrorCode::kInternal, command + " ended with " + std::to_string(status));
  }
  std::vector<fs::path> paths(fs::directory_iterator(models), fs::directory_iterator{});
  std::sort(paths.begin(), paths.end());
  std::vector<GeneratedModel> out;
  for (const fs::path& path : paths) {
    SKIPPY_ASSIGN_OR_RETURN(GeneratedModel model, Describe(path));
    out.push_back(std::move(model));
  }
  return out;
}

Status MakeSensitive(const GeneratedModel& model) {
  const std::string sensitive = model.path + ".sensitive";
  SKIPPY_RETURN_IF_ERROR(SensitizeModel(model.path, sensitive));
  std::error_code failure;
  fs::rename(sensitive, model.path, failure);
  if (failure) {
    return MakeError(ErrorCode::kIo, sensitive + ": " + failure.message());
  }
  return {};
}

}  // namespace skippy
