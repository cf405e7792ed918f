// A catalog with any bytes changed: it is refused, or every row that it hands out is one that was
// written. The input is a list of edits: two bytes of offset (in 4-byte steps), one byte to xor.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/token_digest.h"
#include "catalog/catalog.h"
#include "catalog/row_digest.h"
#include "env/memory_env.h"

namespace skippy {
namespace {

constexpr char kPath[] = "/catalog.db";
constexpr std::uint64_t kSegments = 12;

std::vector<Token> TokensOf(std::uint64_t id) {
  return std::vector<Token>(static_cast<std::size_t>(id) * 3, static_cast<Token>(id * 1000));
}

DomainRow DomainOf() {
  DomainRow row{.id = DomainId{1}};
  row.spec.model.bytes[0] = 1;
  row.spec.name_space = "fuzz";
  return row;
}

SegmentRow SegmentOf(std::uint64_t id) {
  SegmentRow row;
  row.id = static_cast<SegmentId>(id);
  row.domain = DomainId{1};
  row.parent = static_cast<SegmentId>(id - 1);
  row.first_token = static_cast<TokenCount>(id * 10);
  row.token_count = static_cast<TokenCount>(id * 3);
  row.digest.bytes[0] = static_cast<std::uint8_t>(id);
  row.byte_count = id * 100;
  row.extents = {{PackId{1}, static_cast<std::uint32_t>(id), 1}};
  row.head_hash = HashHead(TokensOf(id));
  return row;
}

ManifestRow ManifestOf(std::uint64_t id) {
  return {.id = static_cast<ManifestId>(id),
          .domain = DomainId{1},
          .tip = static_cast<SegmentId>(id),
          .token_count = static_cast<TokenCount>(id * 10)};
}

RowDigest DigestOf(const SegmentRow& row) {
  return DigestRow(row, TokensDigest{}, RootOf(DomainOf().spec));
}
RowDigest DigestOf(const ManifestRow& row) { return DigestRow(row, RootOf(DomainOf().spec)); }

std::vector<std::byte> MakeCatalog() {
  MemoryEnv env;
  auto catalog = std::move(Catalog::Open(&env, {.path = kPath}).value());
  CatalogBatch batch;
  batch.add_domains = {DomainOf()};
  for (std::uint64_t id = 1; id <= kSegments; ++id) {
    batch.add_segments.push_back(SegmentOf(id));
    batch.add_segment_tokens.push_back(TokensOf(id));
    batch.add_manifests.push_back(ManifestOf(id));
  }
  SKIPPY_CHECK(catalog->Commit(batch).has_value(), "commit");
  SKIPPY_CHECK(catalog->Close().has_value(), "close");
  catalog.reset();
  auto file = std::move(env.OpenFile(kPath, {}).value());
  std::vector<std::byte> bytes(file->FileBytes().value());
  SKIPPY_CHECK(file->ReadAt(0, bytes).value() == bytes.size(), "read");
  return bytes;
}

void Write(MemoryEnv& env, std::span<const std::byte> bytes) {
  auto file = std::move(env.OpenFile(kPath, {.create = true, .writable = true}).value());
  SKIPPY_CHECK(file->WriteAt(0, bytes).has_value(), "write");
}

void CheckRows(Catalog& catalog) {
  std::vector<SegmentId> segments;
  const auto loaded = catalog.Load(
      {.domain = [](DomainRow) {},
       .segment =
           [&](SegmentRow row) {
             const auto id = static_cast<std::uint64_t>(row.id);
             SKIPPY_CHECK(id >= 1 && id <= kSegments, "a segment that was never written");
             SKIPPY_CHECK(DigestOf(row) == DigestOf(SegmentOf(id)), "a changed segment");
             segments.push_back(row.id);
           },
       .manifest =
           [&](ManifestRow row) {
             const auto id = static_cast<std::uint64_t>(row.id);
             SKIPPY_CHECK(id >= 1 && id <= kSegments, "a manifest that was never written");
             SKIPPY_CHECK(DigestOf(row) == DigestOf(ManifestOf(id)), "a changed manifest");
           }});
  if (!loaded) return;
  for (const SegmentId id : segments) {
    const auto tokens = catalog.LoadWithTokens(id);
    if (!tokens) continue;
    SKIPPY_CHECK(tokens->tokens == TokensOf(static_cast<std::uint64_t>(id)), "changed tokens");
  }
}

void CheckEdits(std::span<const std::uint8_t> edits) {
  static const std::vector<std::byte> kSound = MakeCatalog();
  std::vector<std::byte> bytes = kSound;
  for (; edits.size() >= 3; edits = edits.subspan(3)) {
    const std::size_t at = (edits[0] * 256U + edits[1]) * 4U + edits[2] % 4U;
    bytes[at % bytes.size()] ^= std::byte(edits[2] | 1U);
  }
  MemoryEnv env;
  Write(env, bytes);
  const auto catalog = Catalog::Open(&env, {.path = kPath});
  if (catalog) CheckRows(**catalog);
}

}  // namespace
}  // namespace skippy

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t byte_count) {
  static const bool kQuiet = (spdlog::set_level(spdlog::level::off), true);
  if (kQuiet) skippy::CheckEdits(std::span(data, byte_count));
  return 0;
}
