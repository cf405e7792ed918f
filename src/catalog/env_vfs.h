// SQLite over Env: all I/O of the catalog goes through the one door that tests can crash, tear and
// fill up. Made for one connection in locking_mode=EXCLUSIVE: there is no shared memory and there
// are no record locks; Env::LockFile on the database keeps a second opener out.
#pragma once

#include <memory>
#include <string>

#include "skippy/env.h"

namespace skippy {

struct EnvVfsState;  // private to env_vfs.cc

// Registered with SQLite, under a name of its own, for the life of the object. Outlives the
// connections that use it. `env` outlives it.
class EnvVfs {
 public:
  explicit EnvVfs(Env* env);
  ~EnvVfs();
  EnvVfs(const EnvVfs&) = delete;
  EnvVfs& operator=(const EnvVfs&) = delete;

  // For sqlite3_open_v2.
  const char* name() const;

 private:
  std::unique_ptr<EnvVfsState> state_;
};

// The directory part of an absolute path.
std::string DirectoryOf(const std::string& path);

}  // namespace skippy
