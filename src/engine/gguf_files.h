// The files that make up a model on disk.
#pragma once

#include <string>
#include <vector>

#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

// All shards of the model that `path` belongs to, in order: NAME-00001-of-0000N.gguf and its
// siblings, otherwise just `path`. kNotFound names the first file that is missing, kInvalidArgument
// what is not a regular file or not the first shard. Symlinks are resolved: the paths returned name
// the files themselves, for reading; the engine loads `path`, whose name says which shards belong
// to it.
Result<std::vector<std::string>> ListModelFiles(Env* env, const std::string& path);

// What the tensor names of a model tell about its rotary position factors.
struct RopeTensors {
  bool has_fixed_factors = false;       // one set, whatever the context
  bool has_long_short_factors = false;  // the context decides which
};

// Reads the headers of all `shards`. kCorrupt when one is no GGUF file.
Result<RopeTensors> ReadRopeTensors(const std::vector<std::string>& shards);

// How the model joins what it makes of each token into one embedding, as its header says.
enum class EmbeddingPooling { kNone, kMean, kFirst, kLast, kRank };
Result<EmbeddingPooling> ReadEmbeddingPooling(const std::string& first_shard);

}  // namespace skippy
