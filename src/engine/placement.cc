#include "engine/placement.h"

#include <ggml-backend.h>
#include <llama.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace skippy {
namespace {

using AddServer = ggml_backend_reg_t (*)(const char* endpoint);

struct AddressesDeleter {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

std::optional<llama_split_mode> ParseSplitMode(std::string_view text) {
  constexpr std::pair<std::string_view, llama_split_mode> kModes[] = {
      {"none", LLAMA_SPLIT_MODE_NONE},
      {"layer", LLAMA_SPLIT_MODE_LAYER},
      {"row", LLAMA_SPLIT_MODE_ROW},
      {"tensor", LLAMA_SPLIT_MODE_TENSOR}};
  for (const auto& [name, mode] : kModes) {
    if (name == text) return mode;
  }
  return std::nullopt;
}

// The library ends the process when it cannot connect.
Status CheckAnswers(const std::string& server) {
  const std::size_t colon = server.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == server.size()) {
    return MakeError(ErrorCode::kInvalidArgument,
                     "--rpc: \"" + server + "\" is not of the form HOST:PORT");
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(server.substr(0, colon).c_str(), server.substr(colon + 1).c_str(),
                                &hints, &found);
  const std::unique_ptr<addrinfo, AddressesDeleter> addresses(found);
  if (error != 0) {
    return MakeError(ErrorCode::kInvalidArgument, "--rpc: " + server + ": " + gai_strerror(error));
  }
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const UniqueFd socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (socket.valid() && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return {};
  }
  return MakeError(ErrorCode::kUnavailable, "--rpc: " + server + " does not answer");
}

Result<AddServer> FindAddServer() {
  ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
  void* const found = rpc == nullptr
                          ? nullptr
                          : ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
  if (found == nullptr) {
    return MakeError(ErrorCode::kUnsupported, "--rpc: llama.cpp was built without RPC");
  }
  return reinterpret_cast<AddServer>(found);
}

}  // namespace

Status RegisterRpcServers(const std::vector<std::string>& servers) {
  static std::mutex mu;
  static std::set<std::string> registered;
  if (servers.empty()) return {};
  SKIPPY_ASSIGN_OR_RETURN(const AddServer add_server, FindAddServer());
  const std::lock_guard<std::mutex> lock(mu);
  for (const std::string& server : servers) {
    if (registered.count(server) > 0) continue;
    SKIPPY_RETURN_IF_ERROR(CheckAnswers(server));
    ggml_backend_reg_t devices = add_server(server.c_str());
    if (devices == nullptr) {
      return MakeError(ErrorCode::kUnavailable, "--rpc: " + server + " offers no device");
    }
    ggml_backend_register(devices);
    registered.insert(server);
  }
  return {};
}

Status ApplyPlacement(const PlacementOptions& options, std::vector<float>* shares,
                      llama_model_params* params) {
  const std::optional<llama_split_mode> mode = ParseSplitMode(options.split_mode);
  if (!mode) {
    return MakeError(ErrorCode::kInvalidArgument, "--split-mode: \"" + options.split_mode +
                                                      "\" is none of none, layer, row, tensor");
  }
  const std::size_t devices_max = llama_max_devices();
  const bool has_bad_share =
      std::any_of(options.tensor_split.begin(), options.tensor_split.end(),
                  [](float share) { return !std::isfinite(share) || share < 0; });
  const bool is_nothing = !options.tensor_split.empty() &&
                          std::all_of(options.tensor_split.begin(), options.tensor_split.end(),
                                      [](float share) { return share == 0; });
  if (has_bad_share || is_nothing || options.tensor_split.size() > devices_max) {
    return MakeError(ErrorCode::kInvalidArgument, "--tensor-split: at most " +
                                                      std::to_string(devices_max) +
                                                      " parts, none negative and not all 0");
  }
  params->split_mode = *mode;
  params->main_gpu = options.main_gpu;
  *shares = options.tensor_split;
  if (!shares->empty()) {
    shares->resize(devices_max, 0);
    params->tensor_split = shares->data();
  }
  return {};
}

}  // namespace skippy
