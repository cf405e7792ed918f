// How long a store with very many segments takes from opening to the first answered lookup, and
// what it needs in memory. The packs are sparse: start-up reads no payload.
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>

#include "bench/arguments.h"
#include "bench/benches.h"
#include "bench/statistics.h"
#include "bench/store.h"
#include "bench/workspace.h"
#include "catalog/catalog.h"
#include "pack/pack_format.h"

namespace skippy::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPackBytes = 256 * kMiB;
constexpr std::uint64_t kSegmentsPerPack = kPackBytes / kBlockBytes - 1;
constexpr std::uint64_t kSegmentsPerChain = 8;
constexpr std::uint64_t kChainsPerBatch = 512;

struct Options {
  std::string work;
  std::uint64_t segments = 1000000;
};

Result<Options> ReadOptions(const std::vector<std::string>& arguments) {
  Options options;
  bool tiny = false;
  CLI::App app("time to open a large store", "skippy bench reopen");
  app.add_option("--segments", options.segments, "of 256 tokens")->check(CLI::Range(8, 100000000));
  app.add_option("--work", options.work, "folder for the cache root");
  app.add_flag("--tiny", tiny, "few segments");
  SKIPPY_RETURN_IF_ERROR(ParseArguments(app, arguments));
  if (tiny) options.segments = 800;
  return options;
}

std::uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Status MakePacks(const std::string& root, std::uint64_t segments) {
  Env* env = Env::Posix();
  for (std::uint64_t pack = 0; pack * kSegmentsPerPack < segments; ++pack) {
    const PackHeader header{PackId{static_cast<std::uint32_t>(pack)}, kPackBytes};
    std::array<std::byte, kBlockBytes> block{};
    EncodePackHeader(header, block);
    SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<File> file,
                            env->OpenFile(root + "/packs/" + PackFileName(header.pack),
                                          {.create = true, .exclusive = true, .writable = true}));
    SKIPPY_RETURN_IF_ERROR(file->WriteAt(0, block));
    SKIPPY_RETURN_IF_ERROR(file->Truncate(kPackBytes));
  }
  return {};
}

// One block in the packs for each segment, whatever its bytes are.
SegmentRow RowOf(std::uint64_t index) {
  const std::uint64_t place = index % kSegmentsPerChain;
  SegmentRow row;
  row.id = static_cast<SegmentId>(index + 1);
  row.domain = static_cast<DomainId>(1);
  row.parent = static_cast<SegmentId>(place == 0 ? 0 : index);
  row.first_token = static_cast<TokenCount>(place) * kMaxSegmentTokens;
  row.token_count = kMaxSegmentTokens;
  row.byte_count = kBlockBytes;
  row.extents = {{PackId{static_cast<std::uint32_t>(index / kSegmentsPerPack)},
                  static_cast<std::uint32_t>(1 + index % kSegmentsPerPack), 1}};
  return row;
}

// No two chains begin alike, as the index demands of segments that no recording has made.
std::vector<Token> PathOf(std::uint64_t chain) {
  auto path = SyntheticPath(chain, static_cast<TokenCount>(kSegmentsPerChain) * kMaxSegmentTokens);
  path.front() = static_cast<Token>(chain);
  return path;
}

void AddChain(std::uint64_t chain, CatalogBatch* batch) {
  const std::uint64_t first = chain * kSegmentsPerChain;
  const std::vector<Token> path = PathOf(chain);
  for (std::uint64_t i = 0; i < kSegmentsPerChain; ++i) {
    batch->add_segments.push_back(RowOf(first + i));
    const auto begin = path.begin() + static_cast<std::ptrdiff_t>(i) * kMaxSegmentTokens;
    batch->add_segment_tokens.emplace_back(begin, begin + kMaxSegmentTokens);
  }
  batch->add_manifests.push_back({.id = static_cast<ManifestId>(chain + 1),
                                  .domain = static_cast<DomainId>(1),
                                  .tip = static_cast<SegmentId>(first + kSegmentsPerChain),
                                  .token_count = static_cast<TokenCount>(path.size()),
                                  .last_use = chain + 1});
}

Status MakeStore(const std::string& root, std::uint64_t chains) {
  Env* env = Env::Posix();
  SKIPPY_RETURN_IF_ERROR(env->CreateDirectory(root));
  SKIPPY_RETURN_IF_ERROR(env->CreateDirectory(root + "/packs"));
  SKIPPY_RETURN_IF_ERROR(MakePacks(root, chains * kSegmentsPerChain));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Catalog> catalog,
                          Catalog::Open(env, {.path = root + "/catalog.db"}));
  for (std::uint64_t first = 0; first < chains; first += kChainsPerBatch) {
    CatalogBatch batch;
    if (first == 0) batch.add_domains.push_back({static_cast<DomainId>(1), BenchDomain()});
    for (std::uint64_t i = first; i < std::min(chains, first + kChainsPerBatch); ++i) {
      AddChain(i, &batch);
    }
    SKIPPY_RETURN_IF_ERROR(catalog->Commit(batch));
  }
  return catalog->Close();
}

}  // namespace

Result<BenchReport> RunReopen(const std::vector<std::string>& arguments) {
  SKIPPY_ASSIGN_OR_RETURN(const Options options, ReadOptions(arguments));
  SKIPPY_ASSIGN_OR_RETURN(const std::unique_ptr<Workspace> workspace,
                          Workspace::Create(options.work));
  const std::string root = workspace->path() + "/root";
  const std::uint64_t chains = options.segments / kSegmentsPerChain;
  SKIPPY_RETURN_IF_ERROR(MakeStore(root, chains));
  const std::vector<Token> path = PathOf(chains / 2);
  const std::uint64_t resident_before = ResidentBytes();
  const auto start = Clock::now();
  SKIPPY_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchStore> store,
      BenchStore::Open({.directory = root, .budget_bytes = kGiB * 1024, .bytes_per_token = 16}));
  store->cache().WarmPath(store->domain(), path, ResumeRule::kAnyToken);
  const PrefixMatch match = store->cache().Lookup(
      store->domain(), path, static_cast<TokenCount>(path.size()), ResumeRule::kAnyToken);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::uint64_t resident_after = ResidentBytes();
  if (match.tokens != static_cast<TokenCount>(path.size())) {
    return MakeError(ErrorCode::kInternal, "the reopened store does not know a stored prefix");
  }
  if (store->cache().GetStatus().disk.unique_segments != chains * kSegmentsPerChain) {
    return MakeError(ErrorCode::kInternal, "the reopened store dropped good segments");
  }
  const auto segments = static_cast<double>(chains * kSegmentsPerChain);
  const double bytes_per_segment =
      static_cast<double>(resident_after - std::min(resident_after, resident_before)) / segments;
  BenchReport report;
  report.name = "reopen";
  report.figure = seconds;
  report.unit = "s to the first answered lookup";
  report.goal = "<= 3 s and <= 300 bytes a segment + 4 a token held hot, at 1,000,000 segments";
  report.inputs = {{"segments", fmt::format("{:.0f}", segments)},
                   {"tokens_per_segment", std::to_string(kMaxSegmentTokens)},
                   {"memory_bytes_per_segment", fmt::format("{:.0f}", bytes_per_segment)},
                   {"tokens_held_hot", "those of the path that was looked up"}};
  report.table =
      FormatTable({{"", "value"},
                   {"segments", fmt::format("{:.0f}", segments)},
                   {"s to the first lookup", fmt::format("{:.3f}", seconds)},
                   {"memory, bytes a segment", fmt::format("{:.0f}", bytes_per_segment)}});
  return report;
}

}  // namespace skippy::bench
