// Tiny random models of one architecture, written by llama.cpp's own generator.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/family.h"
#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy {

struct GeneratedModel {
  std::string path;
  std::string name;  // "llama-moe"
  FamilyInfo family;
  TokenCount positions_max = 0;  // > 0: a table of positions ends here
};

// Owns a directory of its own with the models of one architecture; removed at the end.
class GeneratedModels {
 public:
  explicit GeneratedModels(std::string_view architecture);
  ~GeneratedModels();
  GeneratedModels(const GeneratedModels&) = delete;
  GeneratedModels& operator=(const GeneratedModels&) = delete;

  // Runs the generator. Empty where it has no model of this architecture.
  Result<std::vector<GeneratedModel>> Write();

  std::string Sub(const std::string& name) const { return (directory_ / name).string(); }

 private:
  const std::string architecture_;
  const std::filesystem::path directory_;
};

// Replaces the model's file by one that reacts to its history (docs/design section 10).
Status MakeSensitive(const GeneratedModel& model);

}  // namespace skippy
