#include "engine/gguf_files.h"

#include <gguf.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

namespace skippy {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::size_t kDigits = 5;  // of "00001" in NAME-00001-of-00003.gguf

struct ShardName {
  std::string base;  // "DIR/NAME"
  int index = 0;     // from 1
  int count = 0;
};

std::optional<int> ParseDigits(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::optional<ShardName> ParseShardName(std::string_view path) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kSuffix.size();
  if (path.size() <= kTail || !path.ends_with(kSuffix)) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto index = ParseDigits(tail.substr(1, kDigits));
  const auto count = ParseDigits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!index || !count || *index < 1 || *index > *count) return std::nullopt;
  return ShardName{std::string(path.substr(0, path.size() - kTail)), *index, *count};
}

std::string ShardPath(const ShardName& name, int index) {
  char tail[32];
  std::snprintf(tail, sizeof(tail), "-%05d-of-%05d.gguf", index, name.count);
  return name.base + tail;
}

// The path of the file itself, which Env wants to be free of symlinks.
Result<std::string> ResolveFile(Env* env, const std::string& path) {
  auto file = env->Canonicalize(path);
  if (!file) return file.error().WithContext("model file " + path);
  const auto info = env->Stat(*file);
  if (!info) return info.error().WithContext("model file " + path);
  if (info->kind != FileKind::kRegular) {
    return MakeError(ErrorCode::kInvalidArgument, path + " is not a regular file");
  }
  return file;
}

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

using GgufHeader = std::unique_ptr<gguf_context, GgufDeleter>;

Result<GgufHeader> ReadHeader(const std::string& path) {
  GgufHeader context(gguf_init_from_file(path.c_str(), {/*.no_alloc =*/true, /*.ctx =*/nullptr}));
  if (context == nullptr) {
    return MakeError(ErrorCode::kCorrupt, path + " cannot be read as a GGUF file");
  }
  return context;
}

bool HasTensor(const gguf_context* context, const char* name) {
  return gguf_find_tensor(context, name) >= 0;
}

}  // namespace

Result<std::vector<std::string>> ListModelFiles(Env* env, const std::string& path) {
  std::vector<std::string> files;
  const std::optional<ShardName> shard = ParseShardName(path);
  if (shard && shard->index != 1) {
    return MakeError(ErrorCode::kInvalidArgument,
                     path + " is not the first shard; give " + ShardPath(*shard, 1));
  }
  const int count = shard ? shard->count : 1;
  for (int i = 1; i <= count; ++i) {
    SKIPPY_ASSIGN_OR_RETURN(std::string file,
                            ResolveFile(env, shard ? ShardPath(*shard, i) : path));
    files.push_back(std::move(file));
  }
  return files;
}

Result<RopeTensors> ReadRopeTensors(const std::vector<std::string>& shards) {
  RopeTensors out;
  for (const std::string& path : shards) {
    SKIPPY_ASSIGN_OR_RETURN(const GgufHeader context, ReadHeader(path));
    out.has_fixed_factors |= HasTensor(context.get(), "rope_freqs.weight");
    out.has_long_short_factors |= HasTensor(context.get(), "rope_factors_long.weight") ||
                                  HasTensor(context.get(), "rope_factors_short.weight");
  }
  return out;
}

Result<EmbeddingPooling> ReadEmbeddingPooling(const std::string& first_shard) {
  SKIPPY_ASSIGN_OR_RETURN(const GgufHeader context, ReadHeader(first_shard));
  const std::int64_t architecture = gguf_find_key(context.get(), "general.architecture");
  if (architecture < 0 || gguf_get_kv_type(context.get(), architecture) != GGUF_TYPE_STRING) {
    return EmbeddingPooling::kNone;
  }
  const std::string key =
      std::string(gguf_get_val_str(context.get(), architecture)) + ".pooling_type";
  const std::int64_t pooling = gguf_find_key(context.get(), key.c_str());
  if (pooling < 0 || gguf_get_kv_type(context.get(), pooling) != GGUF_TYPE_UINT32) {
    return EmbeddingPooling::kNone;
  }
  const std::uint32_t value = gguf_get_val_u32(context.get(), pooling);
  return value <= static_cast<std::uint32_t>(EmbeddingPooling::kRank)
             ? static_cast<EmbeddingPooling>(value)
             : EmbeddingPooling::kNone;
}

}  // namespace skippy
