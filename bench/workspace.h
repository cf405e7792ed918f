// Where a bench keeps its files, and what it asks of the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "skippy/result.h"

namespace skippy::bench {

// A fresh folder beside the executable (on the disk of the build, not in memory as temporary
// folders may be), removed at the end.
class Workspace {
 public:
  // `parent` empty: beside the executable.
  static Result<std::unique_ptr<Workspace>> Create(const std::string& parent);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit Workspace(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// Where generated models stay between runs.
Result<std::string> ModelFolder(const std::string& parent);

// The bundled demo model: below the working directory or above the executable.
Result<std::string> FindDemoModel();

// Physical bytes of all files below `root`.
Result<std::uint64_t> DiskBytes(const std::string& root);

// Takes every file below `root` out of the page cache.
Status DropPages(const std::string& root);

struct ReadSpeed {
  std::uint64_t byte_count = 0;
  double milliseconds = 0;
};

// Reads about `byte_count` bytes of the packs below `root`, one request of `request_bytes` after
// the other on this thread, directly where the file system can: what a plain program would take.
Result<ReadSpeed> ReadPacks(const std::string& root, std::uint64_t byte_count,
                            std::uint64_t request_bytes);

}  // namespace skippy::bench
