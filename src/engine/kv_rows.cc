#include "engine/kv_rows.h"

#include <cstring>
#include <type_traits>

#include "base/hash.h"
#include "base/log.h"

namespace skippy {
namespace {

constexpr std::size_t kCellExtensionBytes = 12;  // 2-D position and token id of a cell

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Take() {
    T value{};
    const std::span<const std::byte> raw = TakeBytes(sizeof(T));
    if (!raw.empty()) {
      std::memcpy(&value, raw.data(), sizeof(T));
    }
    return value;
  }
  // Empty and not ok() when fewer are left.
  std::span<const std::byte> TakeBytes(std::size_t count) {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::span<const std::byte> out = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return out;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

Error Corrupt(const char* what) {
  return MakeError(ErrorCode::kCorrupt, std::string("exported rows: ") + what);
}

// One parse attempt; whether cells carry an extension depends on the model, not on the bytes.
class RowParser {
 public:
  RowParser(std::span<const std::byte> bytes, bool cell_extension)
      : reader_(bytes), cell_extension_(cell_extension) {}

  Result<KvRows> Run() {
    reader_.Take<std::uint32_t>();  // magic
    reader_.Take<std::int32_t>();   // sequence
    if (reader_.Take<std::uint32_t>() != 1) {
      return MakeError(ErrorCode::kUnsupported, "exported rows: more than one stream");
    }
    SKIPPY_RETURN_IF_ERROR(ReadCells());
    out_.v_transposed = reader_.Take<std::uint32_t>() != 0;
    out_.layer_count = reader_.Take<std::uint32_t>();
    for (std::uint32_t layer = 0; reader_.ok() && layer < out_.layer_count; ++layer) {
      ReadTensor();
    }
    // Some models keep no V: then the bytes end here.
    for (std::uint32_t layer = 0; !reader_.at_end() && layer < out_.layer_count; ++layer) {
      out_.v_transposed ? ReadTransposed() : ReadTensor();
    }
    if (!reader_.at_end()) {
      return Corrupt("the length does not fit");
    }
    return std::move(out_);
  }

 private:
  Status ReadCells() {
    const auto cell_count = reader_.Take<std::uint32_t>();
    for (std::uint32_t i = 0; i < cell_count && reader_.ok(); ++i) {
      const auto position = reader_.Take<std::int32_t>();
      if (reader_.Take<std::uint32_t>() != 1) {
        return Corrupt("a cell of several sequences");
      }
      if (cell_extension_) {
        reader_.TakeBytes(kCellExtensionBytes);
      }
      reader_.Take<std::int32_t>();  // sequence
      positions_.push_back(position);
      out_.rows[position];
    }
    if (!reader_.ok() || out_.rows.size() != cell_count) {
      return Corrupt("cells");
    }
    return {};
  }

  void ReadTensor() {
    reader_.Take<std::int32_t>();  // type
    const auto row_bytes = static_cast<std::size_t>(reader_.Take<std::uint64_t>());
    for (const TokenCount position : positions_) {
      AppendTo(position, reader_.TakeBytes(row_bytes));
    }
  }

  void ReadTransposed() {
    reader_.Take<std::int32_t>();  // type
    const auto element_bytes = static_cast<std::size_t>(reader_.Take<std::uint32_t>());
    const auto width = reader_.Take<std::uint32_t>();
    for (std::uint32_t i = 0; i < width && reader_.ok(); ++i) {
      for (const TokenCount position : positions_) {
        AppendTo(position, reader_.TakeBytes(element_bytes));
      }
    }
  }

  void AppendTo(TokenCount position, std::span<const std::byte> bytes) {
    std::vector<std::byte>& row = out_.rows[position];
    row.insert(row.end(), bytes.begin(), bytes.end());
  }

  Reader reader_;
  const bool cell_extension_;
  std::vector<TokenCount> positions_;  // in cell order
  KvRows out_;
};

}  // namespace

Result<KvRows> ParseKvRows(std::span<const std::byte> bytes) {
  Result<KvRows> plain = RowParser(bytes, false).Run();
  if (plain || plain.error().code == ErrorCode::kUnsupported) {
    return plain;
  }
  return RowParser(bytes, true).Run();
}

Result<std::map<TokenCount, RowHash>> HashKvRows(std::span<const std::byte> bytes) {
  SKIPPY_ASSIGN_OR_RETURN(const KvRows parsed, ParseKvRows(bytes));
  std::map<TokenCount, RowHash> hashes;
  for (const auto& [position, row] : parsed.rows) {
    hashes[position] = HashBytes<RowHash>(row);
  }
  return hashes;
}

bool RowsAreTraced() { return spdlog::should_log(spdlog::level::trace); }

void TraceRows(const char* what, std::span<const std::byte> bytes) {
  if (!RowsAreTraced()) {
    return;
  }
  const auto hashes = HashKvRows(bytes);
  if (!hashes || hashes->empty()) {
    spdlog::trace("rows {}: not readable", what);
    return;
  }
  std::string line;
  for (const auto& [position, hash] : *hashes) {
    line += ' ' + hash.ToHex().substr(0, 8);
  }
  spdlog::trace("rows {} {}:{}", what, hashes->begin()->first, line);
}

}  // namespace skippy
