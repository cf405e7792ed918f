#include "catalog/database.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "catalog/schema.h"
#include "catalog/statement.h"

namespace skippy {
namespace {

constexpr std::uint32_t kPrivateMode = 0600;

// SQLite's file format: the header's length and where it keeps what we look at.
constexpr std::size_t kHeaderBytes = 100;
constexpr std::size_t kUserVersionOffset = 60;
constexpr std::size_t kApplicationIdOffset = 68;
constexpr std::string_view kMagic{"SQLite format 3\0", 16};

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kLogHeaderBytes = 32;
constexpr std::uint64_t kLogFrameHeaderBytes = 24;

// Free pages are given back above this number and above a quarter of the file, and at most
// kReclaimedPagesMax at a time, so that no commit waits long for it.
constexpr std::int64_t kFreePagesKept = 1024;
constexpr int kReclaimedPagesMax = 512;

// Before the first page is read: in exclusive mode the log's index lives in our own memory.
constexpr const char* kSettings =
    "PRAGMA locking_mode=EXCLUSIVE;"
    "PRAGMA temp_store=MEMORY;"
    "PRAGMA mmap_size=0;"
    "PRAGMA cache_size=-8192;"  // KiB
    "PRAGMA cell_size_check=ON;"
    "PRAGMA trusted_schema=OFF;"
    "PRAGMA synchronous=FULL;"
    "PRAGMA secure_delete=FAST;"
    "PRAGMA wal_autocheckpoint=0;";

std::int32_t BigEndian32(const std::array<std::byte, kHeaderBytes>& header, std::size_t offset) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<std::uint32_t>(header[offset + i]);
  }
  return static_cast<std::int32_t>(value);
}

enum class Existing { kNone, kOurs };

// Looks at the file without SQLite, which would recover, and so change, what it opens.
Result<Existing> Inspect(Env* env, const std::string& path) {
  const auto info = env->Stat(path);
  if (!info && info.error().code != ErrorCode::kNotFound) {
    return info.error();
  }
  if (!info || (info->kind == FileKind::kRegular && info->file_bytes == 0)) {
    return Existing::kNone;
  }
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, env->OpenFile(path, OpenOptions{}));
  std::array<std::byte, kHeaderBytes> header{};
  SKIPPY_ASSIGN_OR_RETURN(const std::size_t got, file->ReadAt(0, header));
  if (got < kHeaderBytes || std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
    return MakeError(ErrorCode::kCorrupt, "catalog " + path + " is not an SQLite database");
  }
  if (BigEndian32(header, kApplicationIdOffset) != kCatalogApplicationId) {
    return MakeError(ErrorCode::kCorrupt, "catalog " + path + " is not a database of ours");
  }
  const std::int32_t version = BigEndian32(header, kUserVersionOffset);
  if (version != kCatalogFormatVersion) {
    return MakeError(ErrorCode::kUnsupported,
                     "catalog " + path + " has format version " + std::to_string(version) +
                         ", this program reads " + std::to_string(kCatalogFormatVersion));
  }
  return Existing::kOurs;
}

Status RemoveIfThere(Env* env, const std::string& path) {
  const Status removed = env->RemoveFile(path);
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return removed.error();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Database>> Database::Open(Env* env, const CatalogOptions& options) {
  SKIPPY_ASSIGN_OR_RETURN(const Existing existing, Inspect(env, options.path));
  std::unique_ptr<Database> database(new Database(env, options));
  if (existing == Existing::kNone) {
    SKIPPY_RETURN_IF_ERROR(database->CreateFile());
  }
  SKIPPY_RETURN_IF_ERROR(database->TightenMode(options.path));
  SKIPPY_RETURN_IF_ERROR(database->Connect(options.path, SQLITE_OPEN_READWRITE));
  SKIPPY_RETURN_IF_ERROR(database->CheckSchema());
  sqlite3_wal_hook(database->db_, &Database::OnCommitted, database.get());
  if (const Status emptied = database->Checkpoint(); !emptied) {
    if (emptied.error().code == ErrorCode::kCorrupt) {
      return emptied.error();
    }
    LogWarning("{}", emptied.error().text);
  }
  return database;
}

Database::~Database() {
  if (const Status closed = Close(); !closed) {
    LogWarning("{}", closed.error().text);
  }
}

// Built under another name, so that a crash leaves either nothing or a whole database.
Status Database::CreateFile() {
  const std::string& path = options_.path;
  const std::string unfinished = path + ".new";
  for (const char* suffix : {".new", ".new-journal", ".new-wal", "-journal", "-wal"}) {
    // A log that outlived its database would be replayed onto the new one.
    SKIPPY_RETURN_IF_ERROR(RemoveIfThere(env_, path + suffix));
  }
  SKIPPY_RETURN_IF_ERROR(env_->SyncDirectory(DirectoryOf(path)));
  SKIPPY_RETURN_IF_ERROR(Connect(unfinished, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  std::string sql = "PRAGMA page_size=" + std::to_string(kPageBytes) +
                    ";PRAGMA auto_vacuum=INCREMENTAL;BEGIN EXCLUSIVE;";
  for (const CatalogTable& table : kCatalogTables) {
    sql.append(table.sql).append(";");
  }
  sql += "PRAGMA application_id=" + std::to_string(kCatalogApplicationId) +
         ";PRAGMA user_version=" + std::to_string(kCatalogFormatVersion) +
         ";COMMIT;PRAGMA journal_mode=WAL;";
  SKIPPY_RETURN_IF_ERROR(Execute(sql.c_str()));
  SKIPPY_RETURN_IF_ERROR(Close());
  // In exclusive mode SQLite empties its rollback journal instead of removing it.
  SKIPPY_RETURN_IF_ERROR(RemoveIfThere(env_, unfinished + "-journal"));
  SKIPPY_RETURN_IF_ERROR(env_->Rename(unfinished, path));
  return env_->SyncDirectory(DirectoryOf(path));
}

Status Database::Connect(const std::string& path, int flags) {
  const int opened = sqlite3_open_v2(path.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, vfs_.name());
  if (opened != SQLITE_OK) {
    return SqliteError(db_, opened, "open " + path);
  }
  sqlite3_extended_result_codes(db_, 1);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  return Execute(kSettings);
}

Status Database::TightenMode(const std::string& path) {
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo info, env_->Stat(path));
  if (info.mode == kPrivateMode) {
    return {};
  }
  return env_->SetMode(path, kPrivateMode);
}

Status Database::CheckSchema() {
  const Error foreign = MakeError(
      ErrorCode::kCorrupt, "catalog " + options_.path + " does not have the schema of its version");
  SKIPPY_ASSIGN_OR_RETURN(
      Statement statement,
      Statement::Prepare(db_, "SELECT name, sql FROM sqlite_master ORDER BY rowid"));
  const StatementScope scope(statement);
  for (const CatalogTable& table : kCatalogTables) {
    SKIPPY_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
    if (!has_row || statement.Text(0) != table.name || statement.Text(1) != table.sql) {
      return foreign;
    }
  }
  SKIPPY_ASSIGN_OR_RETURN(const bool has_more, statement.Step());
  SKIPPY_ASSIGN_OR_RETURN(Statement mode, Statement::Prepare(db_, "PRAGMA journal_mode"));
  const StatementScope mode_scope(mode);
  SKIPPY_ASSIGN_OR_RETURN(const bool has_mode, mode.Step());
  if (has_more || !has_mode || mode.Text(0) != "wal") {
    return foreign;
  }
  return {};
}

Status Database::Execute(const char* sql) {
  const int result = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) {
    return SqliteError(db_, result, std::string_view(sql).substr(0, 40));
  }
  return {};
}

Result<std::int64_t> Database::QueryInt(const char* sql) {
  SKIPPY_ASSIGN_OR_RETURN(Statement statement, Statement::Prepare(db_, sql));
  const StatementScope scope(statement);
  SKIPPY_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  return has_row ? statement.Int(0).value_or(0) : 0;
}

int Database::OnCommitted(void* self, sqlite3* /*db*/, const char* /*schema*/, int log_pages) {
  static_cast<Database*>(self)->log_bytes_ =
      kLogHeaderBytes + static_cast<std::uint64_t>(log_pages) * (kPageBytes + kLogFrameHeaderBytes);
  return SQLITE_OK;
}

Status Database::Checkpoint() {
  const int result =
      sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  if (result != SQLITE_OK) {
    return SqliteError(db_, result, "checkpoint");
  }
  log_bytes_ = 0;
  return {};
}

Status Database::MakeRoomInLog() {
  return log_bytes_ < 2 * options_.wal_limit_bytes ? Status{} : Checkpoint();
}

void Database::AfterCommit() {
  if (log_bytes_ < options_.wal_limit_bytes) {
    return;
  }
  if (const Status emptied = Checkpoint(); !emptied) {
    LogWarning("{}", emptied.error().text);
  }
}

void Database::ReclaimFreePages() {
  const auto free_pages = QueryInt("PRAGMA freelist_count");
  const auto pages = QueryInt("PRAGMA page_count");
  if (!free_pages || !pages || *free_pages <= kFreePagesKept || *free_pages <= *pages / 4) {
    return;
  }
  const std::string sql = "PRAGMA incremental_vacuum(" + std::to_string(kReclaimedPagesMax) + ")";
  if (const Status reclaimed = Execute(sql.c_str()); !reclaimed) {
    LogWarning("{}", reclaimed.error().text);
  }
}

Result<std::uint64_t> Database::PhysicalBytes() {
  SKIPPY_ASSIGN_OR_RETURN(const FileInfo database, env_->Stat(options_.path));
  const auto log = env_->Stat(options_.path + "-wal");
  if (!log && log.error().code != ErrorCode::kNotFound) {
    return log.error();
  }
  return database.allocated_bytes + (log ? log->allocated_bytes : 0);
}

Status Database::Close() {
  if (db_ == nullptr) {
    return {};
  }
  const Status emptied = log_bytes_ > 0 ? Checkpoint() : Status{};
  const int result = sqlite3_close(std::exchange(db_, nullptr));
  if (result != SQLITE_OK) {
    return SqliteError(nullptr, result, "close " + options_.path);
  }
  return emptied;
}

}  // namespace skippy
