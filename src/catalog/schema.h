// The catalog's database, format 2: what docs/catalog_schema.md tells in prose. Writer, reader and
// the check at start all use these texts; a database whose schema differs from them is not ours.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace skippy {

// "Skpy", in SQLite's application_id field (offset 68 of the file).
inline constexpr std::int32_t kCatalogApplicationId = 0x536B7079;

struct CatalogTable {
  std::string_view name;
  std::string_view sql;
};

inline constexpr std::array<CatalogTable, 5> kCatalogTables = {{
    {"high_water", R"(CREATE TABLE high_water(
  one INTEGER PRIMARY KEY CHECK(one = 1),
  segment INTEGER NOT NULL,
  manifest INTEGER NOT NULL,
  domain INTEGER NOT NULL,
  use_clock INTEGER NOT NULL,
  row_digest BLOB NOT NULL
) STRICT)"},
    {"domains", R"(CREATE TABLE domains(
  id INTEGER PRIMARY KEY,
  model_identity BLOB NOT NULL,
  state_identity BLOB NOT NULL,
  name_space BLOB NOT NULL,
  model_name BLOB NOT NULL,
  row_digest BLOB NOT NULL
) STRICT)"},
    {"segments", R"(CREATE TABLE segments(
  id INTEGER PRIMARY KEY,
  domain INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  first_token INTEGER NOT NULL,
  token_count INTEGER NOT NULL,
  end_hash BLOB NOT NULL,
  payload_digest BLOB NOT NULL,
  byte_count INTEGER NOT NULL,
  extents BLOB NOT NULL,
  tokens_digest BLOB NOT NULL,
  head_hash INTEGER NOT NULL,
  row_digest BLOB NOT NULL
) STRICT)"},
    {"segment_tokens", R"(CREATE TABLE segment_tokens(
  segment INTEGER PRIMARY KEY,
  tokens BLOB NOT NULL
) STRICT)"},
    {"manifests", R"(CREATE TABLE manifests(
  id INTEGER PRIMARY KEY,
  domain INTEGER NOT NULL,
  tip INTEGER NOT NULL,
  token_count INTEGER NOT NULL,
  last_use INTEGER NOT NULL,
  hits INTEGER NOT NULL,
  retained_until INTEGER NOT NULL,
  row_digest BLOB NOT NULL
) STRICT)"},
}};

}  // namespace skippy
