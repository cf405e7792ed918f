// A llama.cpp RPC server on this machine, for tests: its one device is the CPU.
// usage: rpc_worker HOST:PORT
#include <ggml-backend.h>
#include <ggml-rpc.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: rpc_worker HOST:PORT\n");
    return 2;
  }
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (device == nullptr) {
    std::fprintf(stderr, "no CPU device\n");
    return 1;
  }
  constexpr std::size_t kThreads = 1;
  ggml_backend_rpc_start_server(argv[1], /*cache_dir=*/nullptr, kThreads, 1, &device);
  return 1;  // it returns on errors only
}
