// Makes a generated model react to its input.
#pragma once

#include <string>

#include "skippy/result.h"

namespace skippy {

// llama.cpp's generated test models have weights so small that another history hardly moves their
// logits. Copies `input` to `output` with 1 added to every norm's weight and every other
// two-dimensional weight multiplied by 8. kCorrupt / kIo name the file.
Status SensitizeModel(const std::string& input, const std::string& output);

}  // namespace skippy
