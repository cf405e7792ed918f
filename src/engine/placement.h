// Where a model's layers are computed: on which devices of this machine, and of which others.
#pragma once

#include <string>
#include <vector>

#include "skippy/result.h"

struct llama_model_params;

namespace skippy {

// As llama-server's flags of the same names.
struct PlacementOptions {
  std::string split_mode = "layer";      // none, layer, row, tensor
  std::vector<float> tensor_split;       // part of each device; empty: by free memory
  int main_gpu = 0;                      // with split mode none
  std::vector<std::string> rpc_servers;  // HOST:PORT
};

// Registers the RPC servers as devices, once in the life of the process. kUnavailable: one does not
// answer, the text names it; kInvalidArgument: an address is none; kUnsupported: not in this build.
Status RegisterRpcServers(const std::vector<std::string>& servers);

// Fills the parameters. `shares` keeps what they point to: it outlives the loading of the model.
// kInvalidArgument names the flag.
Status ApplyPlacement(const PlacementOptions& options, std::vector<float>* shares,
                      llama_model_params* params);

}  // namespace skippy
