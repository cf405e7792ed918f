// Time to first token by prompt length: computed, kept in the engine, restored from disk after
// SIGKILL and a new start. Beside it, what the parts of a restore take when each runs alone.
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <thread>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/http_client.h"
#include "bench/models.h"
#include "bench/prompts.h"
#include "bench/server_process.h"
#include "bench/statistics.h"
#include "bench/workspace.h"
#include "skippy/options.h"

namespace skippy::bench {
namespace {

constexpr double kMB = 1e6;
constexpr std::uint64_t kPromptSeed = 20;
constexpr int kThreadsMax = 4;  // more make the rounds of one small model less alike
constexpr TokenCount kSpareContextTokens = 256;

struct TtftOptions {
  std::string model;
  std::string work;
  std::vector<TokenCount> lengths = {256, 1000, 4000};
  int repeats = 3;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
  bool tiny = false;
};

struct Round {
  Completion cold;
  Completion warm;
  Completion restored;
  std::uint64_t disk_bytes = 0;
  std::uint64_t payload_bytes = 0;  // read for the restore
  ReadSpeed plain_read;

  double read_ms() const {
    return plain_read.milliseconds * static_cast<double>(payload_bytes) /
           static_cast<double>(std::max<std::uint64_t>(plain_read.byte_count, 1));
  }
  double import_ms() const { return restored.import_ms; }
  // A pipeline without a gap: the slower stage runs all the time, and one segment passes through
  // both.
  double ideal_ms() const {
    const double segments = std::max(
        1.0, static_cast<double>(restored.cached_tokens) / static_cast<double>(kMaxSegmentTokens));
    return warm.first_token_ms + std::max(read_ms(), import_ms()) +
           (read_ms() + import_ms()) / segments;
  }
};

// Runs rounds, each with its own cache root and servers.
class TtftRun {
 public:
  TtftRun(const TtftOptions& options, const Workspace& workspace)
      : options_(options), workspace_(workspace) {}

  Result<Round> Measure(TokenCount length) {
    root_ = fmt::format("{}/root-{}", workspace_.path(), ++rounds_);
    Round round;
    SKIPPY_RETURN_IF_ERROR(AskFreshServer(length, &round));
    SKIPPY_RETURN_IF_ERROR(AskAfterRestart(&round));
    SKIPPY_ASSIGN_OR_RETURN(round.disk_bytes, DiskBytes(root_));
    const std::uint64_t segment_bytes =
        round.payload_bytes * kMaxSegmentTokens /
        static_cast<std::uint64_t>(std::max<TokenCount>(kMaxSegmentTokens, length));
    SKIPPY_ASSIGN_OR_RETURN(
        round.plain_read, ReadPacks(root_, round.payload_bytes, std::max(segment_bytes, 4 * kKiB)));
    return round;
  }

 private:
  Result<std::unique_ptr<ServerProcess>> StartServer() const {
    const TokenCount longest = *std::max_element(options_.lengths.begin(), options_.lengths.end());
    return ServerProcess::Start({options_.model,
                                 workspace_.path() + "/server.log",
                                 {"-c", std::to_string(longest + kSpareContextTokens), "-np", "1",
                                  "-t", std::to_string(options_.threads), "--cache-ram", "0",
                                  "--kv-cache-disk", options_.tiny ? "64MiB" : "1GiB",
                                  "--kv-cache-disk-dir", root_, "--kv-cache-min-free", "1GiB"}});
  }

  Status AskFreshServer(TokenCount length, Round* round) {
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, StartServer());
    SKIPPY_ASSIGN_OR_RETURN(prompt_, RandomPrompt(server->port(), length, kPromptSeed));
    SKIPPY_ASSIGN_OR_RETURN(round->cold, Complete(server->port(), {prompt_}));
    SKIPPY_RETURN_IF_ERROR(server->WaitUntilDurable());
    SKIPPY_ASSIGN_OR_RETURN(round->warm, Complete(server->port(), {prompt_}));
    SKIPPY_RETURN_IF_ERROR(Expect("cold", round->cold, 0));
    return Expect("warm", round->warm, length - 1);  // the destructor is the SIGKILL
  }

  Status AskAfterRestart(Round* round) {
    SKIPPY_RETURN_IF_ERROR(DropPages(root_));
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, StartServer());
    SKIPPY_ASSIGN_OR_RETURN(round->restored, Complete(server->port(), {prompt_}));
    SKIPPY_ASSIGN_OR_RETURN(const Json status, server->GetStatus());
    round->payload_bytes = status["activity"].value("bytes_read", std::uint64_t{0});
    SKIPPY_RETURN_IF_ERROR(server->Stop());
    const auto length = static_cast<TokenCount>(prompt_.size());
    SKIPPY_RETURN_IF_ERROR(Expect("after restart", round->restored, length - 1));
    if (round->restored.cached_disk_tokens != length - 1 ||
        round->restored.text != round->warm.text) {
      return MakeError(
          ErrorCode::kInternal,
          fmt::format("after restart: {} tokens from disk, text \"{}\", warm \"{}\"",
                      round->restored.cached_disk_tokens, round->restored.text, round->warm.text));
    }
    return {};
  }

  static Status Expect(std::string_view what, const Completion& completion, TokenCount cached) {
    if (completion.cached_tokens != cached) {
      return MakeError(ErrorCode::kInternal,
                       fmt::format("{}: {} of {} prompt tokens were cached, expected {}", what,
                                   completion.cached_tokens, completion.prompt_tokens, cached));
    }
    return {};
  }

  const TtftOptions& options_;
  const Workspace& workspace_;
  std::string root_;
  std::vector<Token> prompt_;
  int rounds_ = 0;
};

// The rounds of one prompt length.
class Rounds {
 public:
  Rounds(TokenCount length, std::vector<Round> rounds)
      : length_(length), rounds_(std::move(rounds)) {}

  template <class Get>
  std::vector<double> Each(Get get) const {
    std::vector<double> out;
    for (const Round& round : rounds_) {
      out.push_back(get(round));
    }
    return out;
  }
  std::vector<double> Cold() const {
    return Each([](const Round& round) { return round.cold.first_token_ms; });
  }
  std::vector<double> Warm() const {
    return Each([](const Round& round) { return round.warm.first_token_ms; });
  }
  std::vector<double> Restored() const {
    return Each([](const Round& round) { return round.restored.first_token_ms; });
  }
  double RestoredOverCold() const { return Median(Restored()) / Median(Cold()); }
  double IdealMs() const {
    return Median(Each([](const Round& round) { return round.ideal_ms(); }));
  }
  double RestoredOverIdeal() const { return Median(Restored()) / IdealMs(); }

  std::vector<std::string> Row() const {
    return {std::to_string(length_),
            Spread(Cold()),
            Spread(Warm()),
            Spread(Restored()),
            fmt::format("1/{:.1f}", 1 / RestoredOverCold()),
            fmt::format("{:.1f}", IdealMs()),
            fmt::format("{:.2f}", RestoredOverIdeal()),
            Speed([](const Round& round) { return round.read_ms(); }),
            Speed([](const Round& round) { return round.import_ms(); }),
            Speed([](const Round& round) { return round.restored.restore_ms; }),
            fmt::format("{:.2f}", static_cast<double>(rounds_.back().payload_bytes) / kMB),
            fmt::format("{:.1f}", static_cast<double>(rounds_.back().disk_bytes) / kMB)};
  }
  // Middle values of what the server reports of its work for one answer.
  std::vector<std::string> PhaseRow(std::string_view name, Completion Round::*answer) const {
    const auto phase = [&](double Completion::*part) {
      return fmt::format("{:.1f}",
                         Median(Each([&](const Round& round) { return (round.*answer).*part; })));
    };
    return {fmt::format("{} {}", length_, name), phase(&Completion::lookup_ms),
            phase(&Completion::restore_ms),      phase(&Completion::import_ms),
            phase(&Completion::prefill_ms),      phase(&Completion::engine_cpu_ms),
            phase(&Completion::first_token_ms)};
  }
  static std::vector<std::string> PhaseHead() {
    return {"of it, ms", "lookup", "restore", "(import)", "compute", "engine CPU", "client"};
  }
  static std::vector<std::string> Head() {
    return {"prompt tokens", "cold ms",      "warm ms (L1)", "restart ms (L3)",
            "L3/cold",       "ideal ms",     "L3/ideal",     "read MB/s",
            "import MB/s",   "restore MB/s", "MB restored",  "MB on disk"};
  }

 private:
  static std::string Spread(const std::vector<double>& samples) {
    const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
    return samples.size() < 2 ? fmt::format("{:.1f}", Median(samples))
                              : fmt::format("{:.1f} ({:.1f}-{:.1f})", Median(samples), *low, *high);
  }

  template <class Get>
  std::string Speed(Get milliseconds) const {
    const double bytes = static_cast<double>(rounds_.back().payload_bytes);
    const double middle_ms = Median(Each(milliseconds));
    return middle_ms > 0 ? fmt::format("{:.0f}", bytes / kMB / (middle_ms / 1000)) : "-";
  }

  TokenCount length_;
  std::vector<Round> rounds_;
};

Result<TtftOptions> ReadOptions(const std::vector<std::string>& arguments) {
  TtftOptions options;
  CLI::App app("time to first token", "skippy bench ttft");
  app.add_option("--model", options.model, "GGUF; default: random weights in a 135M shape");
  app.add_option("--tokens", options.lengths, "prompt lengths")
      ->delimiter(',')
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--repeats", options.repeats, "rounds of each length")->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads, "of the engine")->check(CLI::Range(1, 1024));
  app.add_option("--work", options.work, "folder for models and cache roots");
  app.add_flag("--tiny", options.tiny, "one short round with the demo model");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (options.tiny) {
    options.lengths = {300};
    options.repeats = 1;
  }
  return options;
}

// Fills in the model; the goal that goes with it.
Result<std::string> ChooseModel(TtftOptions* options) {
  if (options->model.empty() && !options->tiny) {
    SKIPPY_ASSIGN_OR_RETURN(options->model, RandomModel135M(options->work));
    return std::string("<= 0.02 at 4,000 tokens");
  }
  if (options->model.empty()) {
    SKIPPY_ASSIGN_OR_RETURN(options->model, FindDemoModel());
  }
  return std::string("<= 0.1 at 4,000 tokens (demo model)");
}

BenchReport MakeReport(const TtftOptions& options, const std::vector<Rounds>& results) {
  BenchReport report;
  report.name = "ttft";
  report.unit = "L3/cold";
  report.inputs = {{"model", options.model.substr(options.model.rfind('/') + 1)},
                   {"repeats", std::to_string(options.repeats)},
                   {"threads", std::to_string(options.threads)},
                   {"prompt_seed", std::to_string(kPromptSeed)}};
  std::vector<std::vector<std::string>> table = {Rounds::Head()};
  std::vector<std::vector<std::string>> phases = {Rounds::PhaseHead()};
  for (std::size_t i = 0; i < results.size(); ++i) {
    table.push_back(results[i].Row());
    phases.push_back(results[i].PhaseRow("L1", &Round::warm));
    phases.push_back(results[i].PhaseRow("L3", &Round::restored));
    report.figure = results[i].RestoredOverCold();
    for (std::size_t column = 0; column < table.front().size(); ++column) {
      report.inputs[fmt::format("{} at {} tokens", table.front()[column], options.lengths[i])] =
          table.back()[column];
    }
  }
  report.table = FormatTable(table) +
                 "ideal = warm + max(read, import) + one segment's read and import, each measured "
                 "alone in the same run; goal of L3/ideal: <= 1.3\n" +
                 FormatTable(phases);
  return report;
}

}  // namespace

Result<BenchReport> RunTtft(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(TtftOptions options, ReadOptions(arguments));
  std::sort(options.lengths.begin(), options.lengths.end());
  SKIPPY_ASSIGN_OR_RETURN(const std::string goal, ChooseModel(&options));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  TtftRun run(options, *workspace);
  std::vector<Rounds> results;
  for (const TokenCount length : options.lengths) {
    std::vector<Round> rounds;
    for (int i = 0; i < options.repeats; ++i) {
      SKIPPY_ASSIGN_OR_RETURN(Round round, run.Measure(length));
      rounds.push_back(std::move(round));
    }
    results.emplace_back(length, std::move(rounds));
  }
  BenchReport report = MakeReport(options, results);
  report.goal = goal;
  return report;
}

}  // namespace skippy::bench
