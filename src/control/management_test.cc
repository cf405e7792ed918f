// Goal: the management API shows what cache and engine say, removes nothing that was not clearly
// asked for, and answers callers of this machine only. Method: the pure routes over a scripted
// cache, and the sockets over loopback.
#include "control/management.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>

#include "engine/fake_engine.h"
#include "env/memory_env.h"

namespace skippy {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// A cache that keeps nothing: it says what the test told it and notes what it was asked.
class ScriptedCache final : public Cache {
 public:
  Result<DomainId> OpenDomain(const DomainSpec&) override { return DomainId{1}; }
  PrefixMatch Lookup(DomainId, std::span<const Token>, TokenCount, ResumeRule) override {
    return {};
  }
  TokenCount Peek(DomainId, std::span<const Token>, TokenCount, ResumeRule) override { return 0; }
  std::unique_ptr<Restore> StartRestore(PrefixMatch, std::span<const Token>,
                                        std::function<void()>) override {
    return nullptr;
  }
  std::unique_ptr<Recording> StartRecording(DomainId, ResumeRule) override { return nullptr; }
  std::unique_ptr<Buffer> AcquireBuffer(std::uint64_t) override { return nullptr; }
  Status Flush() override { return {}; }
  Result<std::uint64_t> Prune(std::uint64_t target_bytes,
                              std::optional<ModelIdentity> model) override {
    ++prunes;
    last_target_bytes = target_bytes;
    last_model = model;
    return freed_bytes;
  }
  Result<std::uint64_t> Clear(std::optional<ModelIdentity> model) override {
    ++clears;
    last_model = model;
    return freed_bytes;
  }
  Status SetRamLimit(std::uint64_t budget_bytes) override {
    status.ram.budget_bytes = budget_bytes;
    return ram_limit_result;
  }
  void DropRam(const ModelIdentity&) override {}
  Status SetDiskLimits(std::uint64_t budget_bytes, std::uint64_t minimum_free_bytes) override {
    ++disk_limit_changes;
    if (!disk_limits_result) return disk_limits_result;
    status.disk.budget_bytes = budget_bytes;
    status.disk.minimum_free_bytes = minimum_free_bytes;
    return {};
  }
  CacheStatus GetStatus() override { return status; }
  Status Close() override { return {}; }

  CacheStatus status;
  Result<std::uint64_t> freed_bytes = 4096;
  Status ram_limit_result;
  Status disk_limits_result;
  int disk_limit_changes = 0;
  int prunes = 0;
  int clears = 0;
  std::uint64_t last_target_bytes = 0;
  std::optional<ModelIdentity> last_model;
};

class ManagementTest : public ::testing::Test {
 protected:
  ManagementTest() {
    cache_.status.disk_state = TierState::kActive;
    cache_.status.directory = "/cache";
    cache_.status.disk.budget_bytes = 1000;
    cache_.status.disk.used_bytes = 900;
    cache_.status.disk.manifests = 3;
    cache_.status.activity.hits = 7;
    InventoryEntry entry;
    entry.model.bytes[0] = 0xAB;
    entry.model_name = "demo";
    entry.payload_kind = "segments";
    entry.token_count = 4000;
    entry.total_bytes = 640;
    cache_.status.inventory.push_back(entry);
    configured_.options.mode = DiskMode::kFixed;
    configured_.options.budget_bytes = 1000;
    configured_.options.directory = "/cache";
    configured_.mode_source = OptionSource::kCli;
    configured_.budget_source = OptionSource::kCli;
  }

  ManagementReply Call(const std::string& method, const std::string& target,
                       const std::string& body = "") {
    return api().Handle({method, target, "127.0.0.1", "127.0.0.1:3131", "", body});
  }
  Json CallJson(const std::string& method, const std::string& target,
                const std::string& body = "") {
    return Json::parse(Call(method, target, body).body);
  }
  int Removals() const { return cache_.prunes + cache_.clears; }
  ManagementApi& api() {
    if (!api_) {
      api_ = std::make_unique<ManagementApi>(&cache_, configured_);
    }
    return *api_;
  }

  ScriptedCache cache_;
  DiskConfiguration configured_;
  std::unique_ptr<ManagementApi> api_;
};

constexpr const char* kPath = "/api/runtime/kv-cache";
constexpr const char* kLimits = "/api/runtime/kv-cache/limits";
constexpr const char* kPrune = "/api/runtime/kv-cache/prune";

// Proves K8, N1, N2, N3, N4, N5.
TEST_F(ManagementTest, StatusShowsEverySection) {
  const Json status = CallJson("GET", kPath);
  EXPECT_EQ(status["version"], 1);
  EXPECT_EQ(status["format_version"], 1);
  EXPECT_EQ(status["configured"]["mode"], "fixed");
  EXPECT_EQ(status["configured"]["budget_bytes"], 1000);
  EXPECT_EQ(status["configured"]["sources"]["mode"], "cli");
  EXPECT_EQ(status["configured"]["sources"]["minimum_free"], "default");
  EXPECT_EQ(status["effective"]["state"], "active");
  EXPECT_TRUE(status["effective"]["reason"].is_null());
  EXPECT_EQ(status["usage"]["used_bytes"], 900);
  EXPECT_EQ(status["usage"]["manifests"], 3);
  EXPECT_EQ(status["activity"]["hits"], 7);
  EXPECT_TRUE(status["activity"]["last_refusal"].is_null());
  EXPECT_EQ(status["reconciliation"]["removed_orphan_bytes"], 0);
  EXPECT_EQ(status["inventory"][0]["token_count"], 4000);
  EXPECT_EQ(status["inventory"][0]["model_identity"], "ab" + std::string(62, '0'));
  EXPECT_EQ(status["engine"]["state"], "loading");
}

TEST_F(ManagementTest, StatusShowsTheModelOnceItIsLoaded) {
  FakeEngine engine;
  api().SetEngine(&engine);
  const Json status = CallJson("GET", kPath)["engine"];
  EXPECT_EQ(status["state"], "ready");
  EXPECT_EQ(status["model"]["name"], "fake-bytes");
  EXPECT_TRUE(status["model"].contains("cache_type_source"));
  EXPECT_TRUE(status["model"]["model_identity"].is_null());
  EXPECT_TRUE(status.contains("declined_because_recompute_faster"));
}

// Proves N16, J19.
TEST_F(ManagementTest, StatusWorksWithTheTierOffOrDegraded) {
  cache_.status = CacheStatus{};
  EXPECT_EQ(CallJson("GET", kPath)["effective"]["state"], "off");
  cache_.status.disk_state = TierState::kDegraded;
  cache_.status.disk_reason = "storage_unavailable: read-only file system";
  const Json status = CallJson("GET", kPath);
  EXPECT_EQ(status["effective"]["state"], "degraded");
  EXPECT_EQ(status["effective"]["reason"], "storage_unavailable");
  EXPECT_EQ(status["effective"]["detail"], "read-only file system");
  EXPECT_EQ(status["configured"]["mode"], "fixed");
}

// Proves K2.
TEST_F(ManagementTest, OtherMachinesAndForeignPagesAreRefused) {
  ManagementRequest good{"DELETE", kPath, "127.0.0.1", "localhost:3131", "", ""};
  const auto refused = [&](auto change) {
    ManagementRequest request = good;
    change(request);
    return api().Handle(request).status == 403;
  };
  EXPECT_TRUE(refused([](auto& r) { r.remote_address = "192.168.1.5"; }));
  EXPECT_TRUE(refused([](auto& r) { r.remote_address = ""; }));
  EXPECT_TRUE(refused([](auto& r) { r.host = "evil.example:3131"; }));
  EXPECT_TRUE(refused([](auto& r) { r.host = "127.0.0.1.evil.example"; }));
  EXPECT_TRUE(refused([](auto& r) { r.origin = "https://evil.example"; }));
  EXPECT_TRUE(refused([](auto& r) { r.origin = "null"; }));
  EXPECT_TRUE(refused([](auto& r) { r.origin = "http://127.0.0.1.evil.example"; }));
  EXPECT_TRUE(refused([](auto& r) {
    r.method = "GET";
    r.remote_address = "10.0.0.1";
  }));
  EXPECT_EQ(Removals(), 0);
  good.origin = "http://localhost:3131";
  EXPECT_EQ(api().Handle(good).status, 200);
  good.remote_address = "::1";
  good.host = "[::1]:3131";
  EXPECT_EQ(api().Handle(good).status, 200);
}

// Proves K3, K5 and K11.
TEST_F(ManagementTest, WhatIsNotUnderstoodRemovesNothing) {
  for (const std::string body :
       {"{", "[]", "null", "7", R"({"model":"x"})", R"({"model_identity":""})",
        R"({"model_identity":"  "})", R"({"model_identity":7})", R"({"model_identity":null})",
        R"({"model_identity":"abc"})", R"({"target_bytes":-1})", R"({"target_bytes":1.5})",
        R"({"target_bytes":"1GiB"})", R"({"target_bytes":99999999999999999999})",
        R"({"target_bytes":1,"x":2})"}) {
    SCOPED_TRACE(body);
    EXPECT_EQ(Call("POST", kPrune, body).status, 400);
    EXPECT_EQ(Call("DELETE", kPath, body).status, 400);
  }
  EXPECT_EQ(Call("DELETE", kPath, R"({"target_bytes":1})").status, 400);
  EXPECT_EQ(Call("DELETE", std::string(kPath) + "?model_identity=x").status, 400);
  EXPECT_EQ(Removals(), 0);
}

// Proves K6, K7.
TEST_F(ManagementTest, PruneWithoutATargetGoesToTheLowWaterMark) {
  cache_.status.disk.budget_bytes = 64 * kGiB;
  const Json reply = CallJson("POST", kPrune);
  EXPECT_EQ(cache_.last_target_bytes, 64 * kGiB / 100 * 85);
  EXPECT_EQ(reply["freed_bytes"], 4096);
  EXPECT_EQ(reply["status"]["version"], 1);
  EXPECT_EQ(Call("POST", kPrune, R"({"target_bytes":0})").status, 200);
  EXPECT_EQ(cache_.last_target_bytes, 0U);
}

// Proves K6 and U4.
TEST_F(ManagementTest, PruneWithoutATargetIsRefusedAtBudgetZero) {
  cache_.status.disk.budget_bytes = 0;
  const ManagementReply reply = Call("POST", kPrune);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("clear"));
  EXPECT_EQ(Removals(), 0);
}

// Proves K5.
TEST_F(ManagementTest, AModelIdentityIsTrimmedAndUsed) {
  const std::string hex = "AB" + std::string(62, '0');
  EXPECT_EQ(Call("DELETE", kPath, R"({"model_identity":" )" + hex + R"(\n"})").status, 200);
  ASSERT_TRUE(cache_.last_model);
  EXPECT_EQ(cache_.last_model->ToHex(), "ab" + std::string(62, '0'));
  EXPECT_EQ(Call("DELETE", kPath).status, 200);
  EXPECT_FALSE(cache_.last_model);
}

// Proves K4.
TEST_F(ManagementTest, AnInactiveTierIsAConflictAndAFaultIsAServerError) {
  cache_.status.disk_state = TierState::kOff;
  EXPECT_EQ(Call("POST", kPrune).status, 409);
  EXPECT_EQ(Call("DELETE", kPath).status, 409);
  EXPECT_EQ(Removals(), 0);
  cache_.status.disk_state = TierState::kReadOnlyLowSpace;
  cache_.freed_bytes = MakeError(ErrorCode::kIo, "the disk failed");
  const ManagementReply reply = Call("DELETE", kPath);
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(Json::parse(reply.body)["error"]["message"], "the disk failed");
}

TEST_F(ManagementTest, NothingIsRemovedByGet) {
  EXPECT_EQ(Call("GET", kPrune).status, 405);
  EXPECT_EQ(Call("GET", kPrune).allow, "POST");
  EXPECT_EQ(Call("POST", kPath).status, 405);
  EXPECT_EQ(Call("GET", "/").status, 404);
  EXPECT_EQ(Removals(), 0);
}

// Proves D50.
TEST_F(ManagementTest, DiskLimitsChangeOneByOneAndWhatIsNotNamedStays) {
  cache_.status.disk.minimum_free_bytes = 16 * kGiB;
  const Json reply = CallJson("POST", kLimits, R"({"disk_budget_bytes":500})");
  EXPECT_EQ(reply["effective"]["budget_bytes"], 500);
  EXPECT_EQ(cache_.status.disk.minimum_free_bytes, 16 * kGiB);
  EXPECT_EQ(Call("POST", kLimits, R"({"disk_minimum_free_bytes":1073741824})").status, 200);
  EXPECT_EQ(cache_.status.disk.budget_bytes, 500U);
  EXPECT_EQ(cache_.status.disk.minimum_free_bytes, kGiB);
  EXPECT_EQ(Call("POST", kLimits, R"({"cache_ram_mib":1})").status, 200);
  EXPECT_EQ(cache_.disk_limit_changes, 2);
}

TEST_F(ManagementTest, LimitsThatAreNotUnderstoodChangeNothing) {
  for (const std::string body :
       {"", "{}", "[]", R"({"disk_budget":1})", R"({"disk_budget_bytes":"1GiB"})",
        R"({"disk_budget_bytes":-1})", R"({"disk_minimum_free_bytes":1073741823})",
        R"({"disk_budget_bytes":99999999999999999999})",
        R"({"disk_budget_bytes":500,"cache_ram_mib":-1})"}) {
    SCOPED_TRACE(body);
    EXPECT_EQ(Call("POST", kLimits, body).status, 400);
  }
  EXPECT_EQ(cache_.disk_limit_changes, 0);
  cache_.disk_limits_result = MakeError(ErrorCode::kInvalidArgument, "budget_below_entry_floor");
  EXPECT_EQ(Call("POST", kLimits, R"({"disk_budget_bytes":1})").status, 400);
  cache_.status.disk_state = TierState::kDegraded;
  EXPECT_EQ(Call("POST", kLimits, R"({"disk_budget_bytes":500})").status, 409);
  EXPECT_EQ(cache_.disk_limit_changes, 1);
}

TEST_F(ManagementTest, MetricsCarryTheCountersOfCacheAndEngine) {
  EXPECT_THAT(Call("GET", "/metrics").body, HasSubstr("skippy_engine_ready 0"));
  FakeEngine engine;
  api().SetEngine(&engine);
  const ManagementReply reply = Call("GET", "/metrics");
  EXPECT_THAT(reply.content_type, HasSubstr("text/plain"));
  EXPECT_THAT(reply.body, HasSubstr("# TYPE skippy_cache_hits_total counter\n"));
  EXPECT_THAT(reply.body, HasSubstr("skippy_cache_hits_total 7\n"));
  EXPECT_THAT(reply.body, HasSubstr("skippy_disk_state{state=\"active\"} 1\n"));
  EXPECT_THAT(reply.body, HasSubstr("skippy_engine_cached_tokens_total{tier=\"l3\"} 0\n"));
}

// Proves K1.
TEST_F(ManagementTest, AnswersOverLoopbackSockets) {
  ManagementListenOptions options;
  options.port = 0;
  auto server = ManagementServer::Start(options, &api());
  ASSERT_TRUE(server) << server.error().text;
  httplib::Client client("127.0.0.1", (*server)->port());
  const auto status = client.Get(kPath);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->status, 200);
  EXPECT_EQ(Json::parse(status->body)["version"], 1);
  const auto pruned = client.Post(kPrune, R"({"target_bytes":5})", "application/json");
  ASSERT_TRUE(pruned);
  EXPECT_EQ(pruned->status, 200);
  EXPECT_EQ(cache_.last_target_bytes, 5U);
  const auto cleared = client.Delete(kPath, R"({"model_identity":" "})", "application/json");
  ASSERT_TRUE(cleared);
  EXPECT_EQ(cleared->status, 400);
  const auto foreign = client.Delete(kPath, httplib::Headers{{"Origin", "https://evil.example"}});
  ASSERT_TRUE(foreign);
  EXPECT_EQ(foreign->status, 403);
  EXPECT_EQ(cache_.clears, 0);
}

// Proves K4, K7 and N16 with the cache itself.
TEST(ManagementWithCacheTest, FollowsARealCacheOffAndOn) {
  MemoryEnv env;
  for (const DiskMode mode : {DiskMode::kOff, DiskMode::kFixed}) {
    const bool on = mode == DiskMode::kFixed;
    DiskConfiguration configured;
    configured.options.mode = mode;
    configured.options.directory = "/cache";
    configured.options.budget_bytes = on ? kGiB : 0;
    configured.options.minimum_free_bytes = kLowestMinimumFreeBytes;
    CacheOptions options;
    options.disk = configured.options;
    auto cache = Cache::Open(options, &env);
    ASSERT_TRUE(cache) << cache.error().text;
    const ManagementApi api(cache->get(), configured);
    const auto call = [&api](const std::string& method, const std::string& target) {
      return api.Handle({method, target, "127.0.0.1", "127.0.0.1", "", ""});
    };
    const Json status = Json::parse(call("GET", kPath).body);
    EXPECT_EQ(status["effective"]["state"], on ? "active" : "off") << status;
    EXPECT_EQ(status["usage"]["manifests"], 0);
    EXPECT_EQ(call("POST", kPrune).status, on ? 200 : 409);
    const ManagementReply cleared = call("DELETE", kPath);
    EXPECT_EQ(cleared.status, on ? 200 : 409);
    EXPECT_EQ(Json::parse(cleared.body).contains("freed_bytes"), on);
    EXPECT_TRUE((*cache)->Close());
  }
}

TEST_F(ManagementTest, APortInUseIsOneClearError) {
  ManagementListenOptions options;
  options.port = 0;
  auto first = ManagementServer::Start(options, &api());
  ASSERT_TRUE(first);
  options.port = (*first)->port();
  const auto second = ManagementServer::Start(options, &api());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kBusy);
  EXPECT_THAT(second.error().text, HasSubstr("--management-port"));
}

}  // namespace
}  // namespace skippy
