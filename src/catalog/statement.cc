#include "catalog/statement.h"

#include <string>
#include <utility>

namespace skippy {
namespace {

ErrorCode CodeOf(int result_code) {
  switch (result_code & 0xFF) {  // the primary code; the set is SQLite's and open
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::kCorrupt;
    case SQLITE_FULL:
      return ErrorCode::kNoSpace;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return ErrorCode::kIo;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::kBusy;
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return ErrorCode::kResourceExhausted;
    case SQLITE_CONSTRAINT:
      return ErrorCode::kAlreadyExists;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

Error SqliteError(sqlite3* db, int result_code, std::string_view what) {
  std::string text = "catalog: " + std::string(what) + ": " + sqlite3_errstr(result_code);
  int os_errno = 0;
  if (db != nullptr && sqlite3_errcode(db) == (result_code & 0xFF)) {
    text += std::string(" (") + sqlite3_errmsg(db) + ")";
  }
  if (db != nullptr && CodeOf(result_code) == ErrorCode::kIo) {
    os_errno = sqlite3_system_errno(db);
  }
  return MakeError(CodeOf(result_code), std::move(text), os_errno);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)),
      bind_error_(std::exchange(other.bind_error_, SQLITE_OK)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(statement_, other.statement_);
  std::swap(bind_error_, other.bind_error_);
  return *this;
}

Result<Statement> Statement::Prepare(sqlite3* db, std::string_view sql) {
  Statement out;
  const int result = sqlite3_prepare_v3(db, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &out.statement_, nullptr);
  if (result != SQLITE_OK) {
    return SqliteError(db, result, "prepare " + std::string(sql.substr(0, 40)));
  }
  return out;
}

Statement& Statement::BindInt(int parameter, std::int64_t value) {
  bind_error_ |= sqlite3_bind_int64(statement_, parameter, value);
  return *this;
}

Statement& Statement::BindBlob(int parameter, std::span<const std::byte> bytes) {
  // A null pointer would bind NULL instead of an empty blob.
  const void* data = bytes.empty() ? "" : static_cast<const void*>(bytes.data());
  bind_error_ |= sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), SQLITE_STATIC);
  return *this;
}

Result<bool> Statement::Step() {
  sqlite3* db = sqlite3_db_handle(statement_);
  if (bind_error_ != SQLITE_OK) {
    return SqliteError(db, bind_error_, "bind");
  }
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) {
    return true;
  }
  if (result == SQLITE_DONE) {
    return false;
  }
  return SqliteError(db, sqlite3_extended_errcode(db), sqlite3_sql(statement_));
}

Status Statement::Run() {
  const StatementScope scope(*this);
  for (;;) {
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, Step());
    if (!has_row) {
      return {};
    }
  }
}

void Statement::Reset() {
  sqlite3_reset(statement_);  // repeats the error that Step reported
  sqlite3_clear_bindings(statement_);
  bind_error_ = SQLITE_OK;
}

std::optional<std::int64_t> Statement::Int(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_INTEGER) {
    return std::nullopt;
  }
  return sqlite3_column_int64(statement_, column);
}

std::optional<std::span<const std::byte>> Statement::Blob(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_BLOB) {
    return std::nullopt;
  }
  const void* data = sqlite3_column_blob(statement_, column);
  const auto byte_count = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  return std::span(static_cast<const std::byte*>(data), byte_count);
}

std::optional<std::string_view> Statement::Text(int column) const {
  if (sqlite3_column_type(statement_, column) != SQLITE_TEXT) {
    return std::nullopt;
  }
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return std::string_view(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

}  // namespace skippy
