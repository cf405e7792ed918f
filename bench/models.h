// Models made for benches.
#pragma once

#include <string>

#include "skippy/result.h"

namespace skippy::bench {

// The path of a model with random weights in the shape of a 135M llama (576 wide, 30 layers, 9
// heads, 3 KV heads, 1536 FFN). Written once below `work` and used again; about 270 MB.
Result<std::string> RandomModel135M(const std::string& work);

}  // namespace skippy::bench
