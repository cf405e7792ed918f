#include "bench/models.h"

#include <filesystem>
#include <system_error>

#include "bench/workspace.h"
#include "model_writer/random_model.h"

namespace skippy::bench {
namespace {

// About as many entries (50,257) as the vocabulary that models of this shape come with.
constexpr const char* kVocabulary = SKIPPY_VOCABULARY_FOLDER "/ggml-vocab-gpt-2.gguf";

}  // namespace

Result<std::string> RandomModel135M(const std::string& work) {
  SKIPPY_ASSIGN_OR_RETURN(const std::string folder, ModelFolder(work));
  const std::string path = folder + "/random-135m-f16.gguf";
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return path;
  }
  RandomModelOptions options;
  SKIPPY_ASSIGN_OR_RETURN(options.shape, FindShape("smollm2-135m"));
  options.vocabulary_path = kVocabulary;
  const std::string unfinished = path + ".new";
  SKIPPY_RETURN_IF_ERROR(WriteRandomModel(options, unfinished));
  std::filesystem::rename(unfinished, path, error);
  if (error) {
    return MakeError(ErrorCode::kIo, path + ": " + error.message(), error.value());
  }
  return path;
}

}  // namespace skippy::bench
