// SPDX-License-Identifier: Apache-2.0
// Maps strategy names from training and other engines to the strategy that serves the same purpose here.
#include "planner/strategy_names.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace pm {

namespace {

struct Name {
  std::string_view name, answer;
};

constexpr std::string_view no_gradients =
    "there are no gradients and no optimiser states to spread when a model only answers; whole copies are replicas, or "
    "Data";
constexpr std::string_view fully_sharded =
    "it spreads weights and gathers them in each pass, which is Sharded here; Tensor holds 1/n on each device without "
    "gathering";

// Names are compared in lower case, without '-', '_', ' ' and '.'
constexpr Name names[] = {
    {"dataparallel", "one process that copies the model to each device in each pass; use replicas, or Data"},
    {"dp", "whole copies beside each other; use replicas, or Data"},
    {"ddp", "whole copies whose gradients are summed; without training use replicas, or Data"},
    {"distributeddataparallel", "whole copies whose gradients are summed; without training use replicas, or Data"},
    {"zero1", no_gradients},
    {"zero2", no_gradients},
    {"zerodp1", no_gradients},
    {"zerodp2", no_gradients},
    {"shardedddp", no_gradients},
    {"simple", no_gradients},
    {"zero3", fully_sharded},
    {"zerodp3", fully_sharded},
    {"fsdp", fully_sharded},
    {"fsdp2", fully_sharded},
    {"fullyshard", fully_sharded},
    {"fullshard", fully_sharded},
    {"zero",
     "ZeRO-1 and ZeRO-2 spread what only training has (use replicas, or Data); ZeRO-3 is Sharded here; Tensor holds "
     "1/n on each device without gathering"},
    {"hsdp", "weights spread inside groups and copied between them; use Tensor, with replicas or Data for the copies"},
    {"gpipe", "stages and micro-batches; use Pipeline"},
    {"pipedream", "stages; use Pipeline, for its order of backward passes means nothing here"},
    {"pp", "stages; use Pipeline"},
    {"pipelineparallel", "stages; use Pipeline"},
    {"modelparallel",
     "layers one after the other on different devices; use Pipeline, with microBatches: 1 for one at a time"},
    {"mp", "layers one after the other on different devices; use Pipeline, with microBatches: 1 for one at a time"},
    {"devicemap", "layers placed on devices; use Pipeline"},
    {"auto", "leave the strategy out, and it is planned"},
    {"tp", "heads and columns sharded; use Tensor"},
    {"tensorparallel", "heads and columns sharded; use Tensor"},
    {"megatron", "heads and columns sharded; use Tensor"},
    {"autotp", "heads and columns sharded; use Tensor"},
    {"sequenceparallel", "a form of Tensor for activations; use Tensor"},
    {"cpuoffload", "weights that stay with the host; that is Offload here"},
    {"zerooffload", "weights that stay with the host; that is Offload here"},
    {"zeroinfinity", "weights that stay with the host or in a file; that is Offload here"},
    {"nvme", "weights in a file; that is Offload here"},
};

}  // namespace

std::string strategy_list() {
  std::string list;
  for (const Strategy strategy : strategies) {
    if (!list.empty()) list += strategy == std::end(strategies)[-1] ? " or " : ", ";
    list += name_of(strategy);
  }
  return list;
}

std::string advice_on(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ' && c != '.')
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const Name& one : names) {
    if (one.name == plain) return "\"" + std::string(name) + "\": " + std::string(one.answer);
  }
  for (const Strategy strategy : strategies) {
    std::string lower(name_of(strategy));
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower == plain) return "\"" + std::string(name) + "\": write " + std::string(name_of(strategy));
  }
  return "\"" + std::string(name) + "\" is no strategy; expected " + strategy_list();
}

}  // namespace pm
