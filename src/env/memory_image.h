// The contents of a file system as a value: names, files, their bytes and allocated blocks. Pure
// memory; copying is cheap because unchanged pages are shared. What MemoryEnv and FaultEnv are made
// of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skippy/env.h"

namespace skippy {

enum class NodeId : std::uint64_t { kNone = 0 };

// One operation on the file system. The first group changes an image; the second is seen by
// observers only.
enum class FileOpKind {
  kWrite,
  kTruncate,
  kAllocate,
  kPunchHole,
  kCreateFile,
  kCreateDirectory,
  kRemoveFile,
  kRemoveDirectory,
  kRename,
  kSetMode,

  kRead,
  kSync,
  kSyncDirectory,
};

struct FileOp {
  FileOpKind kind = FileOpKind::kRead;
  NodeId node = NodeId::kNone;  // of the file; of a creation: the id that the new node gets
  std::string path;             // as opened; of a rename: the old name
  std::string new_path;         // kRename
  std::uint64_t offset = 0;
  std::uint64_t byte_count = 0;           // kTruncate: the new size; kSetMode: the mode
  std::span<const std::byte> bytes = {};  // kWrite, borrowed
};

// Not thread-safe.
class MemoryImage {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  struct Node {
    FileKind kind = FileKind::kRegular;
    std::uint32_t mode = 0600;
    std::uint64_t file_bytes = 0;
    std::int64_t modified_ns = 0;

   private:
    friend class MemoryImage;
    using Page = std::array<std::byte, kPageBytes>;
    std::map<std::uint64_t, std::shared_ptr<Page>> pages;
    std::vector<bool> backed;  // by page number: written or preallocated
    std::uint64_t backed_pages = 0;
  };

  MemoryImage();  // holds "/"

  // Carries out what can be carried out: an operation on a name or node that is not there changes
  // nothing, so that any subset of a history can be replayed.
  void Apply(const FileOp& op);

  std::optional<NodeId> Find(const std::string& path) const;
  const Node* Get(NodeId node) const;
  Node* Get(NodeId node);
  // Names directly inside a directory.
  std::vector<std::string> List(const std::string& directory) const;
  std::size_t Read(NodeId node, std::uint64_t offset, std::span<std::byte> out) const;
  std::uint64_t AllocatedBytes(NodeId node) const;
  // Of all files that have a name.
  std::uint64_t TotalAllocatedBytes() const;
  // What a write or preallocation of this range would add to AllocatedBytes.
  std::uint64_t MissingBytes(NodeId node, std::uint64_t offset, std::uint64_t byte_count) const;

  // Removes names whose directory does not exist, and nodes without a name except `keep`.
  void DropUnreachable(const std::vector<NodeId>& keep);

 private:
  void Write(Node& node, std::uint64_t offset, std::span<const std::byte> bytes);
  void Truncate(Node& node, std::uint64_t byte_count);
  void Punch(Node& node, std::uint64_t offset, std::uint64_t byte_count);
  void Back(Node& node, std::uint64_t first_page, std::uint64_t end_page);
  void Unback(Node& node, std::uint64_t page);
  void ApplyToNode(const FileOp& op, Node& node);
  void Rename(const FileOp& op);

  std::map<std::string, NodeId> names_;
  std::map<NodeId, Node> nodes_;
};

// "/a/b" of "/a/b/c"; "/" of "/a".
std::string ParentOf(const std::string& path);

}  // namespace skippy
