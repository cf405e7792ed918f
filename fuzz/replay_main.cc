// Runs a fuzz target without a fuzzer: on every file of a corpus folder, and on inputs that a fixed
// seed derives from them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 7;
constexpr int kDerivedInputs = 300;

std::vector<Input> ReadCorpus(const char* folder) {
  std::vector<Input> inputs = {Input{}};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

Input Derive(const Input& from, std::mt19937_64& random) {
  Input out = from;
  for (std::uint64_t i = random() % 64; i > 0; --i) {
    out.push_back(static_cast<std::uint8_t>(random()));
  }
  for (std::uint64_t i = random() % 8; i > 0 && !out.empty(); --i) {
    out[random() % out.size()] = static_cast<std::uint8_t>(random());
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
    return 2;
  }
  std::vector<Input> inputs = ReadCorpus(argv[1]);
  const std::size_t corpus = inputs.size();
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < kDerivedInputs; ++i) {
    inputs.push_back(Derive(inputs[random() % corpus], random));
  }
  for (const Input& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::printf("%zu inputs, %zu of them from the corpus, seed %llu\n", inputs.size(), corpus - 1,
              static_cast<unsigned long long>(kSeed));
  return 0;
}
