#include "engine/weights_digest.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/hash.h"
#include "base/log.h"

namespace skippy {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr std::string_view kMemoName = "weight-digests";
constexpr std::string_view kMemoHeader = "skippy weight digests 1";
constexpr std::uint64_t kMemoBytesMax = std::uint64_t{1} << 20;
constexpr std::size_t kMemoEntriesMax = 1024;
// A file may change again within one tick of the file system's clock without a trace: what changed
// this recently is not remembered.
constexpr std::int64_t kSettledNs = 2'000'000'000;

// What must be the same for a file to have the same bytes. Whoever sets a modification time back
// cannot set the change time back.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t file_bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;

  friend auto operator<=>(const FileStamp&, const FileStamp&) = default;
};

FileStamp StampOf(const FileInfo& info) {
  return {info.device, info.inode, info.file_bytes, info.modified_ns, info.changed_ns};
}

using Memo = std::map<FileStamp, ContentDigest>;

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string Checksum(std::string_view text) {
  return HashBytes<ContentDigest>(AsBytes(text)).ToHex();
}

std::optional<ContentDigest> ParseDigest(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  ContentDigest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const std::size_t nibble = kDigits.find(hex[i]);
    if (nibble == kDigits.npos) return std::nullopt;
    digest.bytes[i / 2] = static_cast<std::uint8_t>((digest.bytes[i / 2] << 4) | nibble);
  }
  return digest;
}

// One line for each file: device, inode, bytes, modified, changed, digest. The last line is the
// digest of all before it: it finds torn and edited memos.
std::string Encode(const Memo& memo) {
  std::ostringstream out;
  out << kMemoHeader << '\n';
  for (const auto& [stamp, digest] : memo) {
    out << stamp.device << ' ' << stamp.inode << ' ' << stamp.file_bytes << ' ' << stamp.modified_ns
        << ' ' << stamp.changed_ns << ' ' << digest.ToHex() << '\n';
  }
  return out.str() + Checksum(out.str()) + '\n';
}

std::optional<Memo> Decode(const std::string& text) {
  constexpr std::size_t kLastLine = 2 * ContentDigest::kByteCount + 1;
  if (text.size() < kLastLine) return std::nullopt;
  const std::string body = text.substr(0, text.size() - kLastLine);
  if (Checksum(body) + '\n' != text.substr(body.size())) return std::nullopt;
  std::istringstream in(body);
  std::string line;
  if (!std::getline(in, line) || line != kMemoHeader) return std::nullopt;
  Memo memo;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    FileStamp stamp;
    std::string hex;
    fields >> stamp.device >> stamp.inode >> stamp.file_bytes >> stamp.modified_ns >>
        stamp.changed_ns >> hex;
    const std::optional<ContentDigest> digest = ParseDigest(hex);
    if (!fields || !digest) return std::nullopt;
    memo[stamp] = *digest;
  }
  return memo;
}

Result<std::string> ReadText(Env* env, const std::string& path) {
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env->OpenFile(path, {}));
  SKIPPY_ASSIGN_OR_RETURN(const std::uint64_t byte_count, file->FileBytes());
  if (byte_count > kMemoBytesMax) return MakeError(ErrorCode::kCorrupt, path + " is too large");
  std::string text(byte_count, '\0');
  SKIPPY_ASSIGN_OR_RETURN(const std::size_t got,
                          file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  text.resize(got);
  return text;
}

Status WriteDurably(Env* env, const std::string& path, const std::string& text) {
  OpenOptions options;
  options.create = options.writable = true;
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env->OpenFile(path, options));
  SKIPPY_RETURN_IF_ERROR(file->Truncate(0));
  SKIPPY_RETURN_IF_ERROR(file->WriteAt(0, AsBytes(text)));
  return file->Sync();
}

// The directory and its missing ancestors.
Status CreateDirectories(Env* env, const std::string& path) {
  if (env->Stat(path).has_value()) return {};
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    SKIPPY_RETURN_IF_ERROR(CreateDirectories(env, path.substr(0, slash)));
  }
  const Status created = env->CreateDirectory(path);
  if (!created && created.error().code != ErrorCode::kAlreadyExists) return created;
  return {};
}

class Digester {
 public:
  Digester(Env* env, const std::string& memo_directory, const std::atomic<bool>* cancel)
      : env_(env), memo_directory_(memo_directory), cancel_(cancel) {}

  Result<ContentDigest> DigestFile(const std::string& given_path) {
    SKIPPY_ASSIGN_OR_RETURN(const std::string path, env_->Canonicalize(given_path));
    SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, env_->Stat(path));
    const FileStamp stamp = StampOf(info);
    if (const auto known = memo_.find(stamp); known != memo_.end()) {
      LogInfo("weights digest: {} is remembered, {} bytes not read", path, stamp.file_bytes);
      return known->second;
    }
    const auto started = env_->MonotonicNow();
    SKIPPY_ASSIGN_OR_RETURN(const ContentDigest digest, ReadFile(path));
    SKIPPY_ASSIGN_OR_RETURN(const FileInfo after, env_->Stat(path));
    if (StampOf(after) != stamp) {
      return MakeError(ErrorCode::kBusy, path + " changed while it was read");
    }
    const auto elapsed =
        std::chrono::duration_cast<std::chrono::milliseconds>(env_->MonotonicNow() - started);
    LogInfo("weights digest: read {}, {} bytes in {} ms", path, stamp.file_bytes, elapsed.count());
    if (env_->WallNow().count() - stamp.changed_ns >= kSettledNs) Remember(stamp, digest);
    return digest;
  }

  void LoadMemo() {
    if (memo_directory_.empty()) return;
    const Result<std::string> text = ReadText(env_, MemoPath());
    if (!text) {
      if (text.error().code != ErrorCode::kNotFound) {
        LogWarning("weights digest: memo is not used: {}", text.error().text);
      }
      return;
    }
    std::optional<Memo> memo = Decode(*text);
    if (!memo) {
      LogWarning("weights digest: memo {} is damaged and starts anew", MemoPath());
      return;
    }
    memo_ = *std::move(memo);
  }

  void SaveMemo() {
    if (memo_directory_.empty() || !changed_) return;
    if (const Status saved = TrySaveMemo(); !saved) {
      LogWarning("weights digest: memo is not written: {}", saved.error().text);
    }
  }

 private:
  std::string MemoPath() const { return memo_directory_ + "/" + std::string(kMemoName); }

  Result<ContentDigest> ReadFile(const std::string& path) {
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env_->OpenFile(path, {}));
    buffer_.resize(kReadBytes);
    Hasher hasher;
    for (std::uint64_t offset = 0;;) {
      if (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) {
        return MakeError(ErrorCode::kCancelled, "digest of " + path);
      }
      SKIPPY_ASSIGN_OR_RETURN(const std::size_t got, file->ReadAt(offset, buffer_));
      if (got == 0) return hasher.Finish<ContentDigest>();
      hasher.Update(buffer_.data(), got);
      offset += got;
    }
  }

  void Remember(const FileStamp& stamp, const ContentDigest& digest) {
    if (memo_directory_.empty()) return;
    // What is known of the same file in an earlier state will not be asked for again.
    std::erase_if(memo_, [&](const auto& entry) {
      return entry.first.device == stamp.device && entry.first.inode == stamp.inode;
    });
    while (memo_.size() >= kMemoEntriesMax) memo_.erase(memo_.begin());
    memo_[stamp] = digest;
    changed_ = true;
  }

  Status TrySaveMemo() {
    const std::string temporary = MemoPath() + ".new";
    SKIPPY_RETURN_IF_ERROR(CreateDirectories(env_, memo_directory_));
    SKIPPY_RETURN_IF_ERROR(WriteDurably(env_, temporary, Encode(memo_)));
    SKIPPY_RETURN_IF_ERROR(env_->Rename(temporary, MemoPath()));
    return env_->SyncDirectory(memo_directory_);
  }

  Env* const env_;
  const std::string memo_directory_;
  const std::atomic<bool>* const cancel_;
  Memo memo_;
  bool changed_ = false;
  std::vector<std::byte> buffer_;
};

}  // namespace

Result<std::vector<ContentDigest>> DigestFiles(Env* env, const std::vector<std::string>& paths,
                                               const std::string& memo_directory,
                                               const std::atomic<bool>* cancel) {
  Digester digester(env, memo_directory, cancel);
  digester.LoadMemo();
  std::vector<ContentDigest> digests;
  for (const std::string& path : paths) {
    auto digest = digester.DigestFile(path);
    if (!digest) {
      digester.SaveMemo();
      return digest.error().WithContext("weights digest");
    }
    digests.push_back(*digest);
  }
  digester.SaveMemo();
  return digests;
}

}  // namespace skippy
