// Goal: what the tool writes loads, reacts to its history and is the same every time. Method: tiny
// models with the vocabularies of the folder that the first argument names.
#include <gtest/gtest.h>
#include <llama.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "model_writer/gguf_output.h"
#include "model_writer/random_model.h"
#include "model_writer/sensitize.h"

namespace skippy {
namespace {

namespace fs = std::filesystem;

std::string VocabularyDirectory() { return testing::internal::GetArgvs().at(1); }

class ModelWriterTest : public testing::Test {
 protected:
  ModelWriterTest()
      : root_(fs::temp_directory_path() / ("model_writer_" + std::to_string(::getpid()))) {
    fs::create_directories(root_);
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  }
  ~ModelWriterTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return (root_ / name).string(); }

  std::string WriteTiny(const std::string& name, ggml_type type, std::uint64_t seed = 1) {
    RandomModelOptions options;
    options.shape = FindShape("tiny").value();
    options.vocabulary_path = VocabularyDirectory() + "/ggml-vocab-llama-spm.gguf";
    options.type = type;
    options.seed = seed;
    const Status written = WriteRandomModel(options, Path(name));
    EXPECT_TRUE(written.has_value()) << written.error().text;
    return Path(name);
  }

  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The logits after `tokens`; empty when the model cannot be loaded.
  static std::vector<float> Logits(const std::string& path, std::vector<llama_token> tokens) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
        llama_model_load_from_file(path.c_str(), model_params), &llama_model_free);
    if (model == nullptr) return {};
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 64;
    params.n_threads = params.n_threads_batch = 1;
    const std::unique_ptr<llama_context, decltype(&llama_free)> context(
        llama_init_from_model(model.get(), params), &llama_free);
    if (llama_decode(context.get(), llama_batch_get_one(tokens.data(), tokens.size())) != 0) {
      return {};
    }
    const float* logits = llama_get_logits_ith(context.get(), -1);
    return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model.get()))};
  }

  // How far the logits move when only the first token is another one.
  static float Reaction(const std::string& path) {
    const auto a = Logits(path, {5, 6, 7, 8, 9, 10});
    const auto b = Logits(path, {15, 6, 7, 8, 9, 10});
    EXPECT_FALSE(a.empty());
    float most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  }

  const fs::path root_;
};

TEST_F(ModelWriterTest, RandomModelsReactToTheirHistory) {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0}) {
    EXPECT_GT(Reaction(WriteTiny("model.gguf", type)), 0.01F) << ggml_type_name(type);
  }
}

TEST_F(ModelWriterTest, TheSameSeedGivesTheSameBytes) {
  const std::string first = Bytes(WriteTiny("a.gguf", GGML_TYPE_F16, 7));
  EXPECT_EQ(first, Bytes(WriteTiny("b.gguf", GGML_TYPE_F16, 7)));
  EXPECT_NE(first, Bytes(WriteTiny("c.gguf", GGML_TYPE_F16, 8)));
}

TEST_F(ModelWriterTest, SensitizingShiftsNormsAndScalesMatrices) {
  const std::string before = WriteTiny("before.gguf", GGML_TYPE_F32);
  ASSERT_TRUE(SensitizeModel(before, Path("after.gguf")).has_value());
  GgmlPtr old_tensors;
  GgmlPtr new_tensors;
  const GgufPtr old_file = ReadGguf(before, &old_tensors).value();
  const GgufPtr new_file = ReadGguf(Path("after.gguf"), &new_tensors).value();
  ASSERT_EQ(gguf_get_n_kv(old_file.get()), gguf_get_n_kv(new_file.get()));
  const auto value = [](const GgmlPtr& tensors, const char* name) {
    return static_cast<const float*>(ggml_get_tensor(tensors.get(), name)->data)[3];
  };
  for (const char* name : {"blk.0.attn_norm.weight", "output_norm.weight"}) {
    EXPECT_EQ(value(new_tensors, name), value(old_tensors, name) + 1) << name;
  }
  for (const char* name : {"blk.1.ffn_up.weight", "token_embd.weight"}) {
    EXPECT_EQ(value(new_tensors, name), value(old_tensors, name) * 8) << name;
  }
}

TEST_F(ModelWriterTest, SaysWhatIsWrong) {
  EXPECT_EQ(FindShape("huge").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(SensitizeModel(Path("missing"), Path("x")).error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(fs::exists(Path("x")));
  RandomModelOptions options;
  options.shape = FindShape("tiny").value();
  options.vocabulary_path = VocabularyDirectory() + "/ggml-vocab-llama-spm.gguf";
  EXPECT_EQ(WriteRandomModel(options, "/nowhere/model.gguf").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace skippy
