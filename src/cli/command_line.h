// The verbs of the program. Every verb adds its sub-command and a callback that puts the exit
// status into *exit_status; 0 done, 1 failed, 2 wrong usage.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace skippy {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

void AddServeCommand(CLI::App& app, int* exit_status);
void AddKvCacheCommand(CLI::App& app, int* exit_status);
void AddBenchCommand(CLI::App& app, int* exit_status);
void AddOptionsCommand(CLI::App& app, int* exit_status);
void AddVersionCommand(CLI::App& app, int* exit_status);

std::string VersionText();

// Parses and runs; `arguments` are without the program's name. Returns the exit status. A mistake
// is one line on standard error.
int RunCommandLine(std::vector<std::string> arguments);

}  // namespace skippy
