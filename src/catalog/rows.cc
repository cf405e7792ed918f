#include "catalog/rows.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace skippy {
namespace {

// Reads columns from left to right and remembers whether all of them had the right form.
class ColumnReader {
 public:
  explicit ColumnReader(const Statement& statement) : statement_(statement) {}

  // Any 64 bits, as stored.
  std::uint64_t Int64() {
    const auto value = statement_.Int(column_++);
    ok_ = ok_ && value.has_value();
    return static_cast<std::uint64_t>(value.value_or(0));
  }
  std::uint64_t IntUpTo(std::uint64_t highest) {
    const std::uint64_t value = Int64();
    ok_ = ok_ && value <= highest;
    return value;
  }
  std::uint32_t Int32() {
    return static_cast<std::uint32_t>(IntUpTo(std::numeric_limits<std::uint32_t>::max()));
  }
  TokenCount Tokens() {
    return static_cast<TokenCount>(IntUpTo(std::numeric_limits<TokenCount>::max()));
  }
  std::span<const std::byte> Blob() {
    const auto bytes = statement_.Blob(column_++);
    ok_ = ok_ && bytes.has_value();
    return bytes.value_or(std::span<const std::byte>{});
  }
  std::string String() {
    const std::span<const std::byte> bytes = Blob();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <class Digest>
  Digest Opaque() {
    Digest out;
    const std::span<const std::byte> bytes = Blob();
    ok_ = ok_ && bytes.size() == out.bytes.size();
    if (ok_) {
      std::memcpy(out.bytes.data(), bytes.data(), bytes.size());
    }
    return out;
  }
  ExtentList Extents() {
    std::optional<ExtentList> extents = DecodeExtents(Blob());
    ok_ = ok_ && extents.has_value();
    return std::move(extents).value_or(ExtentList{});
  }
  bool ok() const { return ok_; }

 private:
  const Statement& statement_;
  int column_ = 0;
  bool ok_ = true;
};

template <class Digest>
std::span<const std::byte> BytesOf(const Digest& digest) {
  return std::as_bytes(std::span(digest.bytes));
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <class Id>
std::int64_t IntOf(Id value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::optional<DomainRow> ReadDomain(const Statement& statement) {
  ColumnReader columns(statement);
  DomainRow row;
  row.id = DomainId{columns.Int32()};
  row.spec.model = columns.Opaque<ModelIdentity>();
  row.spec.state = columns.Opaque<StateIdentity>();
  row.spec.name_space = columns.String();
  row.spec.model_name = columns.String();
  const auto digest = columns.Opaque<RowDigest>();
  if (!columns.ok() || digest != DigestRow(row)) {
    return std::nullopt;
  }
  return row;
}

std::optional<StoredSegment> ReadSegment(const Statement& statement, const DomainRoots& roots) {
  ColumnReader columns(statement);
  StoredSegment out;
  SegmentRow& row = out.row;
  row.id = SegmentId{columns.Int64()};
  row.domain = DomainId{columns.Int32()};
  row.parent = SegmentId{columns.Int64()};
  row.kind = static_cast<SegmentKind>(
      columns.IntUpTo(static_cast<std::uint64_t>(SegmentKind::kCheckpoint)));
  row.first_token = columns.Tokens();
  row.token_count = columns.Tokens();
  row.end_hash = columns.Opaque<PathHash>();
  row.digest = columns.Opaque<SegmentDigest>();
  row.byte_count = columns.Int64();
  row.extents = columns.Extents();
  row.tokens_digest = out.tokens = columns.Opaque<TokensDigest>();
  row.head_hash = columns.Int64();
  const auto digest = columns.Opaque<RowDigest>();
  const auto root = roots.find(row.domain);
  if (!columns.ok() || root == roots.end() || digest != DigestRow(row, out.tokens, root->second)) {
    return std::nullopt;
  }
  return out;
}

std::optional<ManifestRow> ReadManifest(const Statement& statement, const DomainRoots& roots) {
  ColumnReader columns(statement);
  ManifestRow row;
  row.id = ManifestId{columns.Int64()};
  row.domain = DomainId{columns.Int32()};
  row.tip = SegmentId{columns.Int64()};
  row.token_count = columns.Tokens();
  row.last_use = columns.Int64();
  row.hits = columns.Int64();
  row.retained_until_s = columns.Int64();
  const auto digest = columns.Opaque<RowDigest>();
  const auto root = roots.find(row.domain);
  if (!columns.ok() || root == roots.end() || digest != DigestRow(row, root->second)) {
    return std::nullopt;
  }
  return row;
}

std::optional<Catalog::HighWater> ReadHighWater(const Statement& statement) {
  ColumnReader columns(statement);
  columns.IntUpTo(1);  // the row's number
  Catalog::HighWater row;
  row.segment = columns.Int64();
  row.manifest = columns.Int64();
  row.domain = columns.Int32();
  row.use_clock = columns.Int64();
  const auto digest = columns.Opaque<RowDigest>();
  if (!columns.ok() || digest != DigestRow(row)) {
    return std::nullopt;
  }
  return row;
}

Status WriteDomain(Statement& statement, const DomainRow& row) {
  const RowDigest digest = DigestRow(row);
  return statement.BindInt(1, IntOf(row.id))
      .BindBlob(2, BytesOf(row.spec.model))
      .BindBlob(3, BytesOf(row.spec.state))
      .BindBlob(4, BytesOf(row.spec.name_space))
      .BindBlob(5, BytesOf(row.spec.model_name))
      .BindBlob(6, BytesOf(digest))
      .Run();
}

Status WriteSegment(Statement& statement, const StoredSegment& segment, const DomainRoot& root) {
  const SegmentRow& row = segment.row;
  const std::vector<std::byte> extents = EncodeExtents(row.extents);
  const RowDigest digest = DigestRow(row, segment.tokens, root);
  return statement.BindInt(1, IntOf(row.id))
      .BindInt(2, IntOf(row.domain))
      .BindInt(3, IntOf(row.parent))
      .BindInt(4, IntOf(row.kind))
      .BindInt(5, row.first_token)
      .BindInt(6, row.token_count)
      .BindBlob(7, BytesOf(row.end_hash))
      .BindBlob(8, BytesOf(row.digest))
      .BindInt(9, IntOf(row.byte_count))
      .BindBlob(10, extents)
      .BindBlob(11, BytesOf(segment.tokens))
      .BindInt(12, IntOf(row.head_hash))
      .BindBlob(13, BytesOf(digest))
      .Run();
}

Status WriteManifest(Statement& statement, const ManifestRow& row, const DomainRoot& root) {
  const RowDigest digest = DigestRow(row, root);
  return statement.BindInt(1, IntOf(row.id))
      .BindInt(2, IntOf(row.domain))
      .BindInt(3, IntOf(row.tip))
      .BindInt(4, row.token_count)
      .BindInt(5, IntOf(row.last_use))
      .BindInt(6, IntOf(row.hits))
      .BindInt(7, IntOf(row.retained_until_s))
      .BindBlob(8, BytesOf(digest))
      .Run();
}

Status WriteHighWater(Statement& statement, const Catalog::HighWater& row) {
  const RowDigest digest = DigestRow(row);
  return statement.BindInt(1, 1)
      .BindInt(2, IntOf(row.segment))
      .BindInt(3, IntOf(row.manifest))
      .BindInt(4, row.domain)
      .BindInt(5, IntOf(row.use_clock))
      .BindBlob(6, BytesOf(digest))
      .Run();
}

}  // namespace skippy
