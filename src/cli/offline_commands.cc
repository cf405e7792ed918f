#include "cli/offline_commands.h"

#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "cache/offline.h"
#include "cli/command_line.h"
#include "control/byte_size.h"

namespace skippy {
namespace {

using Json = nlohmann::ordered_json;
using Verb = OfflineArguments::Verb;
using Clock = std::chrono::steady_clock;

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json JsonOf(const StoreReport& report) {
  return {{"directory", report.directory},
          {"clean", report.clean()},
          {"manifests", report.manifests},
          {"segments", report.segments},
          {"payload_bytes", report.payload_bytes},
          {"block_bytes", report.block_bytes},
          {"packs", report.packs},
          {"physical_bytes", report.physical_bytes},
          {"bad_rows", report.bad_rows},
          {"bad_manifests", report.bad_manifests},
          {"bad_payloads", report.bad_payloads},
          {"unread_payloads", report.unread_payloads},
          {"orphan_bytes", report.orphan_bytes},
          {"catalog_was_damaged", report.catalog_was_damaged},
          {"foreign_files", report.foreign_files},
          {"problems", report.problems}};
}

Json JsonOf(const StoreDomain& domain) {
  return {{"model_identity", domain.model.ToHex()},
          {"state_identity", domain.state.ToHex()},
          {"model", domain.model_name},
          {"namespace", domain.name_space},
          {"manifests", domain.manifests},
          {"segments", domain.segments},
          {"checkpoints", domain.checkpoints},
          {"payload_bytes", domain.payload_bytes},
          {"longest_tokens", domain.longest_tokens}};
}

std::string TextOf(const StoreReport& report) {
  std::string out = fmt::format("{}: {} prefixes, {} segments, {} of payload in {} packs\n",
                                report.directory, report.manifests, report.segments,
                                FormatByteSize(report.payload_bytes), report.packs);
  for (const std::string& problem : report.problems) out += "  " + problem + "\n";
  for (const std::string& name : report.foreign_files) {
    out += "  " + name + " is not a pack of this store; left alone\n";
  }
  if (report.clean()) return out + "no damage found\n";
  return out + fmt::format(
                   "damaged: {} payloads, {} rows, {} prefixes; not readable: {} payloads; "
                   "not needed: {}\n",
                   report.bad_payloads, report.bad_rows, report.bad_manifests,
                   report.unread_payloads, FormatByteSize(report.orphan_bytes));
}

std::string TextOf(const StoreDomain& domain) {
  return fmt::format(
      "{}  {}  namespace '{}'\n  {} prefixes, up to {} tokens; {} segments, {} "
      "checkpoints, {}\n",
      domain.model.ToHex(), domain.model_name, domain.name_space, domain.manifests,
      domain.longest_tokens, domain.segments, domain.checkpoints,
      FormatByteSize(domain.payload_bytes));
}

// Shows how far the work is, and holds it back to the rate.
class Pace {
 public:
  Pace(const Console& console, bool show, std::uint64_t bytes_per_second)
      : console_(console), show_(show), bytes_per_second_(bytes_per_second) {}

  void At(std::uint64_t done_bytes, std::uint64_t total_bytes) {
    const std::uint64_t percent = total_bytes == 0 ? 100 : done_bytes * 100 / total_bytes;
    if (show_ && percent != shown_percent_) {
      shown_percent_ = percent;
      console_.error << fmt::format("\rchecked {} of {} ({} %)", FormatByteSize(done_bytes),
                                    FormatByteSize(total_bytes), percent)
                     << (percent == 100 ? "\n" : "") << std::flush;
    }
    if (bytes_per_second_ == 0) return;
    const std::chrono::duration<double> due(static_cast<double>(done_bytes) /
                                            static_cast<double>(bytes_per_second_));
    const auto due_at = started_ + std::chrono::duration_cast<Clock::duration>(due);
    MutexLock lock(mu_);
    for (auto now = Clock::now(); now < due_at; now = Clock::now())
      never_.WaitFor(mu_, due_at - now);
  }

 private:
  const Console& console_;
  const bool show_;
  const std::uint64_t bytes_per_second_;
  const Clock::time_point started_ = Clock::now();
  Mutex mu_;
  CondVar never_;  // nobody signals it: time is the condition
  std::uint64_t shown_percent_ = 101;
};

int Fail(const Console& console, const std::string& text) {
  console.error << "skippy: " << text << "\n";
  return kExitFailed;
}

int Inspect(const OfflineArguments& arguments, const Console& console, Env* env) {
  const auto domains = InspectStore(env, {.directory = arguments.directory});
  if (!domains) return Fail(console, domains.error().text);
  if (arguments.json) {
    Json list = Json::array();
    for (const StoreDomain& domain : *domains) list.push_back(JsonOf(domain));
    console.out << Dump({{"directory", arguments.directory}, {"domains", list}}) << "\n";
    return 0;
  }
  for (const StoreDomain& domain : *domains) console.out << TextOf(domain);
  if (domains->empty()) console.out << "empty\n";
  return 0;
}

bool Confirm(const Console& console) {
  if (!console.interactive) {
    console.error << "skippy: repair removes what is damaged; pass --yes\n";
    return false;
  }
  console.error << "Remove everything that is damaged? [y/N] " << std::flush;
  std::string answer;
  std::getline(console.in, answer);
  return answer == "y" || answer == "yes";
}

int Check(const OfflineArguments& arguments, const Console& console, Env* env) {
  std::uint64_t bytes_per_second = 0;
  if (arguments.rate) {
    const auto parsed = ParseByteSize(*arguments.rate);
    if (!parsed) {
      console.error << "skippy: --rate takes " << kByteSizeExpectation << "\n";
      return kExitUsage;
    }
    bytes_per_second = *parsed;
  }
  const bool repairs = arguments.verb == Verb::kRepair;
  if (repairs && !arguments.yes && !Confirm(console)) return kExitFailed;
  Pace pace(console, arguments.show_progress, bytes_per_second);
  const OfflineOptions options{
      .directory = arguments.directory,
      .progress = [&](std::uint64_t done, std::uint64_t total) { pace.At(done, total); }};
  const auto report = repairs ? RepairStore(env, options) : VerifyStore(env, options);
  if (!report) return Fail(console, report.error().text);
  console.out << (arguments.json ? Dump(JsonOf(*report)) + "\n" : TextOf(*report));
  if (repairs) return report->unread_payloads == 0 ? 0 : kExitFailed;
  return report->clean() ? 0 : kExitFailed;
}

}  // namespace

int RunOffline(const OfflineArguments& arguments, const Console& console, Env* env) {
  return arguments.verb == Verb::kInspect ? Inspect(arguments, console, env)
                                          : Check(arguments, console, env);
}

}  // namespace skippy
