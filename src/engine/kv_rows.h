// Takes an exported run of rows apart, so that tests and diagnosis can compare state position by
// position: whole exports stand in cell order and name a sequence, rows do not. Never used to
// serve: there a segment is opaque.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "skippy/ids.h"
#include "skippy/result.h"

namespace skippy {

using RowHash = OpaqueBytes<struct RowHashTag, 16>;

struct KvRows {
  bool v_transposed = false;
  std::uint32_t layer_count = 0;
  // By position: K of every layer, then V of every layer.
  std::map<TokenCount, std::vector<std::byte>> rows;
};

// Understands what llama_state_seq_get_data writes for one attention cache with one stream.
// kCorrupt for anything else, kUnsupported for several streams.
Result<KvRows> ParseKvRows(std::span<const std::byte> bytes);

// By position.
Result<std::map<TokenCount, RowHash>> HashKvRows(std::span<const std::byte> bytes);

// Writes one line of eight hexadecimal digits per row at trace level, so that a test of the whole
// program can compare what was recorded with what arrived. Costs nothing at other levels.
void TraceRows(const char* what, std::span<const std::byte> bytes);
// True when TraceRows would write.
bool RowsAreTraced();

}  // namespace skippy
