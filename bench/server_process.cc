#include "bench/server_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/unique_fd.h"

namespace skippy::bench {
namespace {

constexpr std::chrono::seconds kReadyTimeout{300};
constexpr std::chrono::seconds kDurableTimeout{120};
constexpr std::chrono::milliseconds kPollInterval{5};
constexpr const char* kLlamaServer = SKIPPY_LLAMA_SERVER;

std::string ReadFrom(const std::string& path, std::size_t offset) {
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(offset));
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string LastLine(std::string_view text) {
  while (!text.empty() && text.back() == '\n') {
    text.remove_suffix(1);
  }
  return std::string(text.substr(text.rfind('\n') + 1));
}

// The port in "<before>http://HOST:PORT"; 0 while the line is not there.
int FindPort(const std::string& log, std::string_view before) {
  const std::size_t line = log.find(std::string(before) + "http://");
  const std::size_t end = line == std::string::npos ? line : log.find('\n', line);
  if (end == std::string::npos) {
    return 0;
  }
  return std::atoi(log.c_str() + log.rfind(':', end) + 1);
}

std::vector<std::string> CommandLine(const ServerCommand& command) {
  std::vector<std::string> line;
  if (command.program == ServerProgram::kSkippy) {
    line = {"skippy", "serve", "--management-port", "0"};
  } else {
    line = {"llama-server"};
  }
  line.insert(line.end(), {"--model", command.model_path, "--port", "0", "--host", "127.0.0.1"});
  line.insert(line.end(), command.flags.begin(), command.flags.end());
  return line;
}

cpu_set_t AllowedCpus(bool only_first) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  bool found = false;
  for (int cpu = 0; only_first && cpu < CPU_SETSIZE; ++cpu) {
    if (found) {
      CPU_CLR(cpu, &allowed);
    }
    found = found || CPU_ISSET(cpu, &allowed);
  }
  return allowed;
}

struct ChildSetup {
  const char* program = nullptr;
  int log = -1;
  pid_t parent = -1;
  cpu_set_t cpus;
  char* const* arguments = nullptr;
};

// Between fork and exec only what is safe in the child of a process with threads.
[[noreturn]] void RunChild(const ChildSetup& setup) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == setup.parent && sched_setaffinity(0, sizeof(setup.cpus), &setup.cpus) == 0 &&
      dup2(setup.log, STDOUT_FILENO) >= 0 && dup2(setup.log, STDERR_FILENO) >= 0) {
    execv(setup.program, setup.arguments);
  }
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const ServerCommand& command) {
  const bool own = command.program == ServerProgram::kSkippy;
  const char* program = own ? "/proc/self/exe" : kLlamaServer;
  if (access(program, X_OK) != 0) {
    return MakeError(ErrorCode::kNotFound,
                     std::string(program) + " is not there; `make peers` builds it");
  }
  const UniqueFd log(
      open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) {
    return MakeError(ErrorCode::kIo, "cannot write " + command.log_path);
  }
  std::vector<std::string> line = CommandLine(command);
  std::vector<char*> arguments;
  for (std::string& argument : line) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  server->program_ = command.program;
  server->log_path_ = command.log_path;
  server->log_start_ = std::filesystem::file_size(command.log_path);
  const ChildSetup setup{program, log.get(), getpid(), AllowedCpus(command.on_one_cpu),
                         arguments.data()};
  server->pid_ = fork();
  if (server->pid_ < 0) {
    return MakeError(ErrorCode::kResourceExhausted, "cannot start another process");
  }
  if (server->pid_ == 0) {
    RunChild(setup);
  }
  SKIPPY_RETURN_IF_ERROR(server->WaitUntilReady());
  return server;
}

Result<Json> ServerProcess::GetStatus() const {
  return GetJson(management_port_, "/api/runtime/kv-cache");
}

bool ServerProcess::FindPorts() {
  const std::string log = ReadFrom(log_path_, log_start_);
  port_ = FindPort(log, "listening on ");
  management_port_ = FindPort(log, "management API on ");
  return HasPorts();
}

bool ServerProcess::IsReady() {
  if ((!HasPorts() && !FindPorts()) || !GetJson(port_, "/health")) {
    return false;
  }
  if (program_ == ServerProgram::kLlamaServer) {
    return true;
  }
  const Result<Json> status = GetStatus();
  if (!status) {
    return false;
  }
  return (*status)["configured"]["mode"] == "off" ||
         (*status)["engine"]["model"]["model_identity"].is_string();
}

Status ServerProcess::WaitUntilReady() {
  const auto deadline = std::chrono::steady_clock::now() + kReadyTimeout;
  while (!IsReady()) {
    if (HasEnded()) {
      return MakeError(ErrorCode::kUnavailable,
                       "the server ended: " + LastLine(ReadFrom(log_path_, log_start_)));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return MakeError(ErrorCode::kDeadlineExceeded,
                       "the server is not ready: " + LastLine(ReadFrom(log_path_, log_start_)));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return {};
}

Status ServerProcess::WaitUntilDurable() const {
  const auto deadline = std::chrono::steady_clock::now() + kDurableTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    SKIPPY_ASSIGN_OR_RETURN(const Json status, GetStatus());
    // The inventory names what is durable.
    const std::uint64_t durable =
        status["inventory"].size() + status.value("inventory_omitted", std::uint64_t{0});
    if (status["activity"]["write_queue_bytes"] == 0 && durable > 0 &&
        durable == status["usage"]["manifests"]) {
      return {};
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return MakeError(ErrorCode::kDeadlineExceeded, "the recorded state did not become durable");
}

bool ServerProcess::HasEnded() {
  if (pid_ > 0 && waitpid(pid_, &exit_status_, WNOHANG) == pid_) {
    pid_ = -1;
  }
  return pid_ < 0;
}

Status ServerProcess::Stop() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    while (waitpid(pid_, &exit_status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  if (!WIFEXITED(exit_status_) || WEXITSTATUS(exit_status_) != 0) {
    return MakeError(ErrorCode::kInternal,
                     "the server stopped badly: " + LastLine(ReadFrom(log_path_, log_start_)));
  }
  return {};
}

void ServerProcess::Kill9() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &exit_status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
}

}  // namespace skippy::bench
