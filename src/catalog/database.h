// The SQLite connection of the catalog: creation, opening, settings, checkpoints. Knows the schema
// but no rows. Used by one thread at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "catalog/catalog.h"
#include "catalog/env_vfs.h"
#include "skippy/env.h"
#include "skippy/result.h"

namespace skippy {

class Database {
 public:
  // Outcomes as Catalog::Open has them. A missing or empty file becomes a new database; it appears
  // under its name only when it is complete and durable.
  static Result<std::unique_ptr<Database>> Open(Env* env, const CatalogOptions& options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  sqlite3* handle() const { return db_; }
  // One or more statements without rows of interest.
  Status Execute(const char* sql);
  Result<std::int64_t> QueryInt(const char* sql);

  // Fails when the log is twice its limit long and cannot be emptied: the allowance that the budget
  // reserves for it would be passed.
  Status MakeRoomInLog();
  // After a commit: empties the log when it has reached its limit. A failure is logged and met
  // again by MakeRoomInLog.
  void AfterCommit();
  // Gives some free pages back to the file system when there are many. Same rule for failures.
  void ReclaimFreePages();

  Result<std::uint64_t> PhysicalBytes();
  // Empties and removes the log. Statements must be finalised before.
  Status Close();

 private:
  Database(Env* env, const CatalogOptions& options) : env_(env), options_(options), vfs_(env) {}

  Status CreateFile();
  Status Connect(const std::string& path, int flags);
  Status CheckSchema();
  Status Checkpoint();
  Status TightenMode(const std::string& path);
  static int OnCommitted(void* self, sqlite3* db, const char* schema, int log_pages);

  Env* const env_;
  const CatalogOptions options_;
  EnvVfs vfs_;
  sqlite3* db_ = nullptr;
  std::uint64_t log_bytes_ = 0;
};

}  // namespace skippy
