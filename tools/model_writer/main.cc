// skippy-model-writer OUT.gguf --shape NAME --vocab FILE.gguf, or --sensitize IN.gguf OUT.gguf.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "model_writer/random_model.h"
#include "model_writer/sensitize.h"

namespace skippy {
namespace {

struct Arguments {
  std::string output;
  std::string shape = "smollm2-135m";
  std::string sensitize;
  RandomModelOptions model;
};

Status Run(Arguments& arguments) {
  if (!arguments.sensitize.empty()) return SensitizeModel(arguments.sensitize, arguments.output);
  if (arguments.model.vocabulary_path.empty()) {
    return MakeError(ErrorCode::kInvalidArgument, "--vocab is needed");
  }
  SKIPPY_ASSIGN_OR_RETURN(arguments.model.shape, FindShape(arguments.shape));
  return WriteRandomModel(arguments.model, arguments.output);
}

}  // namespace
}  // namespace skippy

int main(int argc, char** argv) {
  skippy::Arguments arguments;
  CLI::App app("Writes models for tests and benchmarks.");
  const std::map<std::string, ggml_type> types = {
      {"f32", GGML_TYPE_F32}, {"f16", GGML_TYPE_F16}, {"q8_0", GGML_TYPE_Q8_0}};
  app.add_option("OUT", arguments.output, "file to write")->required();
  app.add_option("--shape", arguments.shape, "shape of a random model: smollm2-135m, tiny");
  app.add_option("--vocab", arguments.model.vocabulary_path,
                 "GGUF file to take the tokenizer from");
  app.add_option("--type", arguments.model.type, "type of the matrices: f32, f16, q8_0")
      ->transform(CLI::CheckedTransformer(types));
  app.add_option("--seed", arguments.model.seed, "another seed, other weights");
  app.add_option("--sensitize", arguments.sensitize,
                 "generated model to copy with weights that react to the input");
  CLI11_PARSE(app, argc, argv);
  if (const skippy::Status status = skippy::Run(arguments); !status) {
    std::fprintf(stderr, "skippy-model-writer: %s\n", status.error().text.c_str());
    return 1;
  }
  return 0;
}
