// SPDX-License-Identifier: Apache-2.0
// Typical situations of users: a model, its devices, and the constraints.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "models.h"
#include "planner/plan.h"

namespace pm::test {

constexpr int64_t gibi = int64_t{1} << 30;

inline ModelMetadata llama(int layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn,
                           int64_t vocab = 32000) {
  ModelMetadata metadata = decoder({.layers = layers,
                                    .hidden = hidden,
                                    .heads = heads,
                                    .kv_heads = kv_heads,
                                    .head_dim = hidden / heads,
                                    .ffn = ffn * 3 / 2,
                                    .vocab = vocab,
                                    .positions = 4096,
                                    .dtype = DType::BF16,
                                    .qkv_bias = false});
  metadata.model_type = "llama";
  metadata.architecture = "LlamaForCausalLM";
  metadata.parts.pop_back();  // rotary positions have no table
  metadata.parts[0].also.clear();
  metadata.parts.push_back({"", stack_input, 1, Axis::Vocab, vocab, hidden, DType::BF16});
  metadata.parameters = 0;
  for (const Part& part : metadata.parts) metadata.parameters += part.units * part.elements_per_unit * part.count;
  metadata.checkpoint_bytes = metadata.parameters * 2;
  return metadata;
}
inline ModelMetadata llama_7b() { return llama(32, 4096, 32, 32, 11008); }
inline ModelMetadata llama_70b() { return llama(80, 8192, 64, 8, 28672); }
inline ModelMetadata tiny() {
  return decoder({.layers = 4,
                  .hidden = 64,
                  .heads = 4,
                  .kv_heads = 4,
                  .head_dim = 16,
                  .ffn = 256,
                  .vocab = 512,
                  .positions = 256});
}
inline ModelMetadata encoder(int layers = 24, int64_t hidden = 1024, int64_t heads = 16) {
  ModelMetadata metadata = decoder({.layers = layers,
                                    .hidden = hidden,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .head_dim = hidden / heads,
                                    .ffn = 4 * hidden,
                                    .vocab = 30522,
                                    .positions = 512});
  metadata.model_type = "bert";
  metadata.architecture = "BertModel";
  metadata.task = "embed";
  metadata.stacks[0].name = "encoder";
  metadata.stacks[0].causal = false;
  for (Part& part : metadata.parts) part.stack = "encoder", part.also.clear();
  return metadata;
}
/// Returns a model with layers of 6 GiB: four layers of a very wide decoder.
inline ModelMetadata wide() { return llama(4, 16384, 128, 128, 65536 * 4 / 3); }

inline Hardware cpus(int devices, int64_t memory) {
  return {.kind = DeviceKind::CPU, .devices = devices, .device_memory = memory};
}
inline Hardware gpus(int devices, const std::string& product, int per_node = 0) {
  return {.kind = DeviceKind::GPU, .devices = devices, .devices_per_node = per_node, .product = product};
}
/// Returns devices with given link bandwidths, as users state measured ones.
inline Hardware linked(int devices, int64_t memory, double bandwidth, double latency, int per_node = 0,
                       double node_bandwidth = 0, double node_latency = 0) {
  Hardware hardware{.kind = DeviceKind::GPU, .devices = devices, .devices_per_node = per_node, .device_memory = memory};
  hardware.memory_bandwidth = {900e9, "spec"};
  hardware.flops = {120e12, "spec"};
  hardware.link_bandwidth = {bandwidth, "spec"};
  hardware.link_latency = {latency, "spec"};
  if (node_bandwidth > 0) hardware.node_bandwidth = {node_bandwidth, "spec"};
  if (node_latency > 0) hardware.node_latency = {node_latency, "spec"};
  return hardware;
}

struct Situation {
  std::string name;
  ModelMetadata metadata;
  Hardware hardware;
  PlanConstraints constraints;
  std::string choice;  ///< "Tensor x 2", or "-" for a refusal
  std::string reason;
  std::vector<std::string> words;  ///< expected in the message, or in that of a rejected alternative
};

std::vector<Situation> situations();
inline void PrintTo(const Situation& situation, std::ostream* out) { *out << situation.name; }

}  // namespace pm::test
