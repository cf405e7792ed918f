#include "bench/workspace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <system_error>
#include <vector>

#include "pack/pack_format.h"
#include "skippy/env.h"

namespace skippy::bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDemoModel = "models/skippy-demo-f16.gguf";

fs::path ExecutableFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

Result<fs::path> MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return MakeError(ErrorCode::kIo, path.string() + ": " + error.message(), error.value());
  }
  return fs::canonical(path);
}

fs::path Parent(const std::string& parent) {
  return parent.empty() ? ExecutableFolder() / "bench-work" : fs::path(parent);
}

Result<std::vector<std::string>> FilesBelow(const std::string& root) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error)) {
      out.push_back(it->path());
    }
  }
  if (error) {
    return MakeError(ErrorCode::kIo, root + ": " + error.message(), error.value());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Page-aligned, as direct reads want it.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t byte_count)
      : bytes_(static_cast<std::byte*>(::operator new(byte_count, kAlignment)), byte_count) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{1});  // its pages exist before the clock runs
  }
  ~AlignedBuffer() { ::operator delete(bytes_.data(), kAlignment); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  std::span<std::byte> first(std::size_t byte_count) { return bytes_.first(byte_count); }

 private:
  static constexpr std::align_val_t kAlignment{kBlockBytes};
  const std::span<std::byte> bytes_;
};

std::uint64_t RoundUp(std::uint64_t byte_count) {
  return (byte_count + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::Create(const std::string& parent) {
  SKIPPY_ASSIGN_OR_RETURN(const fs::path folder,
                          MakeFolder(Parent(parent) / ("run-" + std::to_string(getpid()))));
  return std::unique_ptr<Workspace>(new Workspace(folder));
}

Workspace::~Workspace() {
  std::error_code left_behind;  // a folder that stays is seen and harmless
  fs::remove_all(path_, left_behind);
}

Result<std::string> ModelFolder(const std::string& parent) {
  SKIPPY_ASSIGN_OR_RETURN(const fs::path folder, MakeFolder(Parent(parent) / "models"));
  return folder.string();
}

Result<std::string> FindDemoModel() {
  std::error_code error;
  for (const fs::path& base : {fs::path("."), ExecutableFolder() / "../../.."}) {
    if (fs::is_regular_file(base / kDemoModel, error)) {
      return (base / kDemoModel).lexically_normal().string();
    }
  }
  return MakeError(ErrorCode::kNotFound,
                   std::string(kDemoModel) + " is not found; give --model a GGUF file");
}

Result<std::uint64_t> DiskBytes(const std::string& root) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesBelow(root));
  std::uint64_t byte_count = 0;
  for (const std::string& path : files) {
    SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, Env::Posix()->Stat(path));
    byte_count += info.allocated_bytes;
  }
  return byte_count;
}

Status DropPages(const std::string& root) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesBelow(root));
  for (const std::string& path : files) {
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, Env::Posix()->OpenFile(path, {}));
    file->DropPages();
  }
  return {};
}

Result<ReadSpeed> ReadPacks(const std::string& root, std::uint64_t byte_count,
                            std::uint64_t request_bytes) {
  SKIPPY_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesBelow(root));
  SKIPPY_RETURN_IF_ERROR(DropPages(root));
  AlignedBuffer buffer(RoundUp(request_bytes));
  ReadSpeed speed;
  for (const std::string& path : files) {
    if (!ParsePackFileName(fs::path(path).filename().string())) {
      continue;
    }
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> pack,
                            Env::Posix()->OpenFile(path, {.direct = true}));
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t offset = kBlockBytes; speed.byte_count < byte_count;) {
      const std::uint64_t wanted =
          std::min(RoundUp(request_bytes), RoundUp(byte_count - speed.byte_count));
      SKIPPY_ASSIGN_OR_RETURN(const std::size_t read, pack->ReadAt(offset, buffer.first(wanted)));
      if (read == 0) {
        break;
      }
      offset += read;
      speed.byte_count += read;
    }
    speed.milliseconds +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return speed;
}

}  // namespace skippy::bench
