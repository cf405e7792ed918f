#include "env/memory_image.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace skippy {
namespace {

constexpr NodeId kRootNode{1};

std::uint64_t PagesFor(std::uint64_t byte_count) {
  return (byte_count + MemoryImage::kPageBytes - 1) / MemoryImage::kPageBytes;
}

bool IsInside(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

}  // namespace

std::string ParentOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

MemoryImage::MemoryImage() {
  names_["/"] = kRootNode;
  nodes_[kRootNode].kind = FileKind::kDirectory;
  nodes_[kRootNode].mode = 0700;
}

std::optional<NodeId> MemoryImage::Find(const std::string& path) const {
  const auto it = names_.find(path);
  return it == names_.end() ? std::nullopt : std::optional(it->second);
}

const MemoryImage::Node* MemoryImage::Get(NodeId node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

MemoryImage::Node* MemoryImage::Get(NodeId node) {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

std::vector<std::string> MemoryImage::List(const std::string& directory) const {
  const std::string prefix = directory == "/" ? "/" : directory + "/";
  std::vector<std::string> out;
  for (auto it = names_.upper_bound(prefix); it != names_.end() && it->first.starts_with(prefix);
       ++it) {
    const std::string name = it->first.substr(prefix.size());
    if (name.find('/') == std::string::npos) {
      out.push_back(name);
    }
  }
  return out;
}

std::size_t MemoryImage::Read(NodeId id, std::uint64_t offset, std::span<std::byte> out) const {
  const Node* const node = Get(id);
  if (node == nullptr || offset >= node->file_bytes) {
    return 0;
  }
  const std::size_t total = std::min<std::uint64_t>(out.size(), node->file_bytes - offset);
  for (std::size_t done = 0; done < total;) {
    const std::uint64_t at = offset + done;
    const std::size_t part = std::min<std::uint64_t>(total - done, kPageBytes - at % kPageBytes);
    const auto page = node->pages.find(at / kPageBytes);
    if (page == node->pages.end()) {
      std::memset(out.data() + done, 0, part);
    } else {
      std::memcpy(out.data() + done, page->second->data() + at % kPageBytes, part);
    }
    done += part;
  }
  return total;
}

std::uint64_t MemoryImage::AllocatedBytes(NodeId id) const {
  const Node* const node = Get(id);
  return node == nullptr ? 0 : node->backed_pages * kPageBytes;
}

std::uint64_t MemoryImage::TotalAllocatedBytes() const {
  std::uint64_t total = 0;
  for (const auto& [path, node] : names_) {
    total += AllocatedBytes(node);
  }
  return total;
}

std::uint64_t MemoryImage::MissingBytes(NodeId id, std::uint64_t offset,
                                        std::uint64_t byte_count) const {
  const Node* const node = Get(id);
  std::uint64_t missing_pages = 0;
  for (std::uint64_t page = offset / kPageBytes; page < PagesFor(offset + byte_count); ++page) {
    missing_pages += node == nullptr || page >= node->backed.size() || !node->backed[page];
  }
  return missing_pages * kPageBytes;
}

void MemoryImage::Back(Node& node, std::uint64_t first_page, std::uint64_t end_page) {
  if (node.backed.size() < end_page) {
    node.backed.resize(end_page);
  }
  for (std::uint64_t page = first_page; page < end_page; ++page) {
    node.backed_pages += !node.backed[page];
    node.backed[page] = true;
  }
}

void MemoryImage::Unback(Node& node, std::uint64_t page) {
  if (page < node.backed.size() && node.backed[page]) {
    node.backed[page] = false;
    --node.backed_pages;
  }
  node.pages.erase(page);
}

void MemoryImage::Write(Node& node, std::uint64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const std::uint64_t at = offset + done;
    const std::size_t part =
        std::min<std::uint64_t>(bytes.size() - done, kPageBytes - at % kPageBytes);
    std::shared_ptr<Node::Page>& page = node.pages[at / kPageBytes];
    if (!page) {
      page = std::make_shared<Node::Page>();
    } else if (page.use_count() > 1) {
      page = std::make_shared<Node::Page>(*page);  // another image still looks at the old bytes
    }
    std::memcpy(page->data() + at % kPageBytes, bytes.data() + done, part);
    done += part;
  }
  if (!bytes.empty()) {
    Back(node, offset / kPageBytes, PagesFor(offset + bytes.size()));
    node.file_bytes = std::max(node.file_bytes, offset + bytes.size());
  }
}

void MemoryImage::Truncate(Node& node, std::uint64_t byte_count) {
  if (byte_count < node.file_bytes) {
    for (std::uint64_t page = PagesFor(byte_count); page < node.backed.size(); ++page) {
      Unback(node, page);
    }
    const std::uint64_t tail = byte_count % kPageBytes;
    if (tail != 0 && node.pages.contains(byte_count / kPageBytes)) {
      const std::vector<std::byte> zeros(kPageBytes - tail);
      Write(node, byte_count, zeros);
    }
  }
  node.file_bytes = byte_count;
}

void MemoryImage::Punch(Node& node, std::uint64_t offset, std::uint64_t byte_count) {
  for (std::uint64_t page = offset / kPageBytes; page < (offset + byte_count) / kPageBytes;
       ++page) {
    Unback(node, page);
  }
}

void MemoryImage::ApplyToNode(const FileOp& op, Node& node) {
  switch (op.kind) {
    case FileOpKind::kWrite:
      Write(node, op.offset, op.bytes);
      break;
    case FileOpKind::kTruncate:
      Truncate(node, op.byte_count);
      break;
    case FileOpKind::kAllocate:
      Back(node, op.offset / kPageBytes, PagesFor(op.offset + op.byte_count));
      node.file_bytes = std::max(node.file_bytes, op.offset + op.byte_count);
      break;
    case FileOpKind::kPunchHole:
      Punch(node, op.offset, op.byte_count);
      break;
    case FileOpKind::kSetMode:
      node.mode = static_cast<std::uint32_t>(op.byte_count);
      break;
    default:
      break;
  }
}

// Goes by the node, not by the old name: a replay may have dropped the creation.
void MemoryImage::Rename(const FileOp& op) {
  if (const auto it = names_.find(op.path); it != names_.end() && it->second == op.node) {
    names_.erase(it);
  }
  std::map<std::string, NodeId> moved;
  for (auto it = names_.upper_bound(op.path); it != names_.end();) {
    if (IsInside(it->first, op.path)) {
      moved.emplace(op.new_path + it->first.substr(op.path.size()), it->second);
      it = names_.erase(it);
    } else if (it->first.starts_with(op.path)) {
      ++it;
    } else {
      break;
    }
  }
  names_.insert(moved.begin(), moved.end());
  if (nodes_.contains(op.node)) {
    names_[op.new_path] = op.node;
  }
}

void MemoryImage::Apply(const FileOp& op) {
  switch (op.kind) {
    case FileOpKind::kCreateFile:
    case FileOpKind::kCreateDirectory: {
      const bool directory = op.kind == FileOpKind::kCreateDirectory;
      Node& node = nodes_[op.node];
      node.kind = directory ? FileKind::kDirectory : FileKind::kRegular;
      node.mode = directory ? 0700 : 0600;
      names_[op.path] = op.node;
      break;
    }
    case FileOpKind::kRemoveFile:
    case FileOpKind::kRemoveDirectory:
      if (const auto it = names_.find(op.path); it != names_.end() && it->second == op.node) {
        names_.erase(it);
      }
      break;
    case FileOpKind::kRename:
      Rename(op);
      break;
    default:
      if (Node* const node = Get(op.node)) {
        ApplyToNode(op, *node);
      }
      break;
  }
}

void MemoryImage::DropUnreachable(const std::vector<NodeId>& keep) {
  std::set<NodeId> reachable(keep.begin(), keep.end());
  // Sorted by name: a directory comes before what lies inside it.
  for (auto it = names_.begin(); it != names_.end();) {
    if (it->first == "/" || names_.contains(ParentOf(it->first))) {
      reachable.insert(it->second);
      ++it;
    } else {
      it = names_.erase(it);
    }
  }
  std::erase_if(nodes_, [&](const auto& entry) { return !reachable.contains(entry.first); });
}

}  // namespace skippy
