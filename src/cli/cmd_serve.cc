#include <spdlog/sinks/stdout_color_sinks.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "cli/command_line.h"
#include "cli/serve_flags.h"
#include "cli/serve_run.h"

namespace skippy {
namespace {

std::optional<std::string> ReadEnvironment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void OpenLog(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("skippy"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

int Fail(const std::string& text, int exit_status) {
  std::fprintf(stderr, "skippy: %s\n", text.c_str());
  return exit_status;
}

int Serve(const GivenFlags& given) {
  const auto configuration = ResolveOptions({ToPairs(given), ReadEnvironment});
  if (!configuration) {
    return Fail(configuration.error().text, kExitUsage);
  }
  if (configuration->engine.model_path.empty()) {
    return Fail("--model: missing: expected the path of a GGUF file", kExitUsage);
  }
  const auto stop = StopSignal::Open();
  if (!stop) {
    return Fail(stop.error().text, kExitFailed);
  }
  OpenLog(configuration->log_level);
  for (const std::string& warning : configuration->warnings) {
    LogWarning("{}", warning);
  }
  return RunServe(*configuration, stop->get());
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_status) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over HTTP");
  const auto given = std::make_shared<GivenFlags>();
  AddServeFlags(*command, given.get());
  command->callback([given, exit_status] { *exit_status = Serve(*given); });
}

}  // namespace skippy
