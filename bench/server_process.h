// A real server for a bench: this very executable as a child process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/http_client.h"
#include "skippy/result.h"

namespace skippy::bench {

enum class ServerProgram { kSkippy, kLlamaServer };

struct ServerCommand {
  std::string model_path;
  std::string log_path;            // appended to
  std::vector<std::string> flags;  // of the program; ports are chosen here
  // All its threads on the first CPU of this process: the CPUs of a virtual machine may differ.
  bool on_one_cpu = false;
  ServerProgram program = ServerProgram::kSkippy;
};

// One run of `skippy serve`, or of the llama-server that `make peers` builds. It dies with the
// thread that started it, however that ends. Not thread-safe.
class ServerProcess {
 public:
  // Returns when requests are served and, with a disk tier, the model's identity is known. The
  // error has the last line of the server's log. kNotFound: llama-server was not built.
  static Result<std::unique_ptr<ServerProcess>> Start(const ServerCommand& command);
  ~ServerProcess() { Kill9(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int port() const { return port_; }
  // The answer of the management API, which only Skippy has.
  Result<Json> GetStatus() const;
  // Until everything recorded so far is on disk.
  Status WaitUntilDurable() const;
  // SIGTERM, and waits. kInternal when the exit status is not 0.
  Status Stop();
  // SIGKILL, and waits. Nothing when it ended already.
  void Kill9();

 private:
  ServerProcess() = default;
  Status WaitUntilReady();
  bool FindPorts();
  bool HasPorts() const {
    return port_ != 0 && (management_port_ != 0 || program_ == ServerProgram::kLlamaServer);
  }
  bool IsReady();
  bool HasEnded();

  ServerProgram program_ = ServerProgram::kSkippy;
  std::string log_path_;
  std::size_t log_start_ = 0;  // where this run's lines begin
  pid_t pid_ = -1;             // -1: reaped
  int port_ = 0;
  int management_port_ = 0;
  int exit_status_ = 0;
};

}  // namespace skippy::bench
