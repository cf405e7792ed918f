#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/explain_command.h"
#include "cli/kv_cache_commands.h"
#include "cli/offline_commands.h"

namespace skippy {
namespace {

void AddCommonFlags(CLI::App* command, KvCacheArguments* arguments) {
  command->add_option("--endpoint", arguments->endpoints, "HOST[:PORT] to call; repeatable")
      ->allow_extra_args(false)
      ->type_name("ENDPOINT");
  command->add_option("--port", arguments->port, "port on this machine (default: 3131)")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT");
  command->add_flag("--json", arguments->json, "print the whole reply");
}

void AddRemovalFlags(CLI::App* command, KvCacheArguments* arguments) {
  command->add_option("--model-identity", arguments->model_identity, "only this model's prefixes")
      ->type_name("ID");
  command->add_flag("--yes", arguments->yes, "do not ask");
}

int Run(const KvCacheArguments& arguments) {
  const Console console{std::cin, std::cout, std::cerr, isatty(STDIN_FILENO) == 1};
  return RunKvCache(arguments, console, CallEndpoint);
}

using Verb = KvCacheArguments::Verb;

void AddVerb(CLI::App* parent, Verb verb, const char* name, const char* help, int* exit_status) {
  const auto arguments = std::make_shared<KvCacheArguments>();
  arguments->verb = verb;
  CLI::App* command = parent->add_subcommand(name, help);
  AddCommonFlags(command, arguments.get());
  if (verb == Verb::kPrune || verb == Verb::kClear) {
    AddRemovalFlags(command, arguments.get());
  }
  if (verb == Verb::kPrune) {
    command
        ->add_option("--target", arguments->target,
                     "evict down to SIZE (default: 85 % of the budget)")
        ->type_name("SIZE");
  }
  if (verb == Verb::kLimits) {
    command->add_option("--cache-ram", arguments->cache_ram_mib, "budget of the RAM tier in MiB")
        ->type_name("N");
    command
        ->add_option("--kv-cache-disk-budget", arguments->disk_budget,
                     "hard limit of the whole cache directory")
        ->type_name("SIZE");
    command
        ->add_option("--kv-cache-min-free", arguments->minimum_free,
                     "free space that the cache never takes")
        ->type_name("SIZE");
  }
  command->callback([arguments, exit_status] { *exit_status = Run(*arguments); });
}

void AddOfflineVerb(CLI::App* parent, OfflineArguments::Verb verb, const char* name,
                    const char* help, int* exit_status) {
  const auto arguments = std::make_shared<OfflineArguments>();
  arguments->verb = verb;
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("--kv-cache-disk-dir", arguments->directory, "the store")
      ->required()
      ->type_name("DIR");
  command->add_flag("--json", arguments->json, "print a JSON object");
  if (verb != OfflineArguments::Verb::kInspect) {
    command->add_option("--rate", arguments->rate, "read at most SIZE in a second")
        ->type_name("SIZE");
  }
  if (verb == OfflineArguments::Verb::kRepair) {
    command->add_flag("--yes", arguments->yes, "do not ask");
  }
  command->callback([arguments, exit_status] {
    arguments->show_progress = isatty(STDERR_FILENO) == 1;
    const Console console{std::cin, std::cout, std::cerr, isatty(STDIN_FILENO) == 1};
    *exit_status = RunOffline(*arguments, console, Env::Posix());
  });
}

void AddExplain(CLI::App* parent, int* exit_status) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command =
      parent->add_subcommand("explain", "Why a request was cached as far as it was");
  command->add_option("ID", arguments->request_id, "the request's id, from X-Request-Id")
      ->required();
  command->add_option("--endpoint", arguments->endpoint, "HOST[:PORT] of the API")
      ->type_name("ENDPOINT");
  command->add_option("--port", arguments->port, "port of the API (default: 9337)")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT");
  command->add_option("--api-key", arguments->api_key, "key of the API")
      ->envname("SKIPPY_API_KEY")
      ->type_name("KEY");
  command->add_flag("--json", arguments->json, "print the whole reply");
  command->callback([arguments, exit_status] {
    const Console console{std::cin, std::cout, std::cerr, false};
    *exit_status = RunExplain(*arguments, console, GetFromApi);
  });
}

}  // namespace

void AddKvCacheCommand(CLI::App& app, int* exit_status) {
  CLI::App* parent = app.add_subcommand("kv-cache", "Look after the cache");
  parent->require_subcommand(1);
  AddVerb(parent, Verb::kStatus, "status", "What the cache holds and does", exit_status);
  AddExplain(parent, exit_status);
  AddVerb(parent, Verb::kPrune, "prune", "Evict least recently used prefixes", exit_status);
  AddVerb(parent, Verb::kClear, "clear", "Remove everything that is not in use", exit_status);
  AddVerb(parent, Verb::kLimits, "limits", "Change budgets while the server runs", exit_status);
  AddOfflineVerb(parent, OfflineArguments::Verb::kVerify, "verify",
                 "Read and check everything in the store of a stopped server", exit_status);
  AddOfflineVerb(parent, OfflineArguments::Verb::kInspect, "inspect",
                 "List what is in the store of a stopped server", exit_status);
  AddOfflineVerb(parent, OfflineArguments::Verb::kRepair, "repair",
                 "Drop what is damaged in the store of a stopped server", exit_status);
}

}  // namespace skippy
