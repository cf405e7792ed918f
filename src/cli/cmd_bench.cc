// The home of every benchmark: `skippy bench NAME [--json] [ARGUMENTS...]`. Without a name all of
// them run, one after the other.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/registry.h"
#include "cli/command_line.h"

namespace skippy {
namespace {

struct BenchArguments {
  std::string name;
  bool list = false;
  bool json = false;
};

std::string Text(std::string_view view) { return std::string(view); }

void PrintList() {
  for (const bench::Benchmark& benchmark : bench::Benchmarks()) {
    std::printf("%-24s %s (goal: %s)\n", Text(benchmark.name).c_str(), Text(benchmark.help).c_str(),
                Text(benchmark.goal).c_str());
  }
}

void PrintReport(const bench::BenchReport& report, bool json) {
  if (json) {
    const nlohmann::ordered_json out = {{"name", report.name},
                                        {"figure", report.figure},
                                        {"unit", report.unit},
                                        {"goal", report.goal},
                                        {"inputs", report.inputs}};
    std::puts(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  std::printf("%s\n%s: %g %s (goal: %s)\n", report.table.c_str(), report.name.c_str(),
              report.figure, report.unit.c_str(), report.goal.c_str());
}

bool RunOne(const bench::Benchmark& benchmark, const std::vector<std::string>& rest, bool json) {
  const auto report = benchmark.run(rest);
  if (!report) {
    std::fprintf(stderr, "skippy: bench %s: %s\n", Text(benchmark.name).c_str(),
                 report.error().text.c_str());
    return false;
  }
  PrintReport(*report, json);
  return true;
}

int RunBench(const BenchArguments& arguments, const std::vector<std::string>& rest) {
  if (arguments.list) {
    PrintList();
    return 0;
  }
  bool found = false;
  bool good = true;
  for (const bench::Benchmark& benchmark : bench::Benchmarks()) {
    if (arguments.name.empty() || benchmark.name == arguments.name) {
      found = true;
      good = RunOne(benchmark, rest, arguments.json) && good;
    }
  }
  if (!found && !arguments.name.empty()) {
    std::fprintf(stderr, "skippy: there is no benchmark named %s (see skippy bench --list)\n",
                 arguments.name.c_str());
    return kExitUsage;
  }
  return good ? 0 : kExitFailed;
}

}  // namespace

void AddBenchCommand(CLI::App& app, int* exit_status) {
  CLI::App* command = app.add_subcommand("bench", "Run benchmarks");
  const auto arguments = std::make_shared<BenchArguments>();
  command->add_option("name", arguments->name, "which; without it, all");
  command->add_flag("--list", arguments->list, "list them");
  command->add_flag("--json", arguments->json, "one JSON object per benchmark");
  command->allow_extras();
  command->callback([command, arguments, exit_status] {
    *exit_status = RunBench(*arguments, command->remaining());
  });
}

}  // namespace skippy
