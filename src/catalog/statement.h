// A prepared SQLite statement. Used by one thread at a time, and only while its connection is open.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "skippy/result.h"

namespace skippy {

// The Error for a failed SQLite call on `db` (may be null); `what` says what was being done.
Error SqliteError(sqlite3* db, int result_code, std::string_view what);

class Statement {
 public:
  Statement() = default;
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;

  // `sql` holds one statement.
  static Result<Statement> Prepare(sqlite3* db, std::string_view sql);

  // Parameters are numbered from 1. Blobs are not copied: they must live until Reset or Run.
  Statement& BindInt(int parameter, std::int64_t value);
  Statement& BindBlob(int parameter, std::span<const std::byte> bytes);

  // True: a row is there to read. False: no more rows.
  Result<bool> Step();
  // Steps to the end, ignoring rows, and resets whatever happened.
  Status Run();
  // Ends the reading and forgets the parameters.
  void Reset();

  // Columns are numbered from 0. Absent when the stored value is of another type, as it may be in
  // a damaged database. A blob is valid until the next Step, Reset or Run.
  std::optional<std::int64_t> Int(int column) const;
  std::optional<std::span<const std::byte>> Blob(int column) const;
  std::optional<std::string_view> Text(int column) const;

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bind_error_ = SQLITE_OK;
};

// Resets a statement at the end of a scope, so that no read transaction outlives it.
class StatementScope {
 public:
  explicit StatementScope(Statement& statement) : statement_(statement) {}
  ~StatementScope() { statement_.Reset(); }
  StatementScope(const StatementScope&) = delete;
  StatementScope& operator=(const StatementScope&) = delete;

 private:
  Statement& statement_;
};

}  // namespace skippy
