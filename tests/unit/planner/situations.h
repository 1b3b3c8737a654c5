// Situations that people are in: a model, the devices they have, what they ask for.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "models.h"
#include "planner/plan.h"

namespace pm::test {

constexpr int64_t gibi = int64_t{1} << 30;

inline Facts llama(int layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t vocab = 32000) {
  Facts facts = decoder({.layers = layers, .hidden = hidden, .heads = heads, .kv_heads = kv_heads, .head_dim = hidden / heads, .ffn = ffn * 3 / 2, .vocab = vocab, .positions = 4096,
                         .dtype = DType::BF16, .qkv_bias = false});
  facts.model_type = "llama";
  facts.architecture = "LlamaForCausalLM";
  facts.parts.pop_back();   // rotary positions have no table
  facts.parts[0].also.clear();
  facts.parts.push_back({"", stack_input, 1, Axis::Vocab, vocab, hidden, DType::BF16});
  facts.parameters = 0;
  for (const Part& part : facts.parts) facts.parameters += part.units * part.elements_per_unit * part.count;
  facts.checkpoint_bytes = facts.parameters * 2;
  return facts;
}
inline Facts llama_7b() { return llama(32, 4096, 32, 32, 11008); }
inline Facts llama_70b() { return llama(80, 8192, 64, 8, 28672); }
inline Facts tiny() { return decoder({.layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .head_dim = 16, .ffn = 256, .vocab = 512, .positions = 256}); }
inline Facts encoder(int layers = 24, int64_t hidden = 1024, int64_t heads = 16) {
  Facts facts = decoder({.layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads, .head_dim = hidden / heads, .ffn = 4 * hidden, .vocab = 30522, .positions = 512});
  facts.model_type = "bert";
  facts.architecture = "BertModel";
  facts.task = "embed";
  facts.stacks[0].name = "encoder";
  facts.stacks[0].causal = false;
  for (Part& part : facts.parts) part.stack = "encoder", part.also.clear();
  return facts;
}
/// A layer of 6 GiB: four layers of a very wide model.
inline Facts wide() { return llama(4, 16384, 128, 128, 65536 * 4 / 3); }

inline Hardware cpus(int devices, int64_t memory) { return {.kind = DeviceKind::CPU, .devices = devices, .device_memory = memory}; }
inline Hardware gpus(int devices, const std::string& product, int per_node = 0) {
  return {.kind = DeviceKind::GPU, .devices = devices, .devices_per_node = per_node, .product = product};
}
/// Devices whose links are told, as people tell them who measured.
inline Hardware linked(int devices, int64_t memory, double bandwidth, double latency, int per_node = 0, double node_bandwidth = 0, double node_latency = 0) {
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
  Facts facts;
  Hardware hardware;
  Wishes wishes;
  std::string choice;                ///< "Tensor x 2", or "-" for a refusal
  std::string reason;
  std::vector<std::string> words;    ///< in the message, or in that of a rejected alternative
};

std::vector<Situation> situations();
inline void PrintTo(const Situation& situation, std::ostream* out) { *out << situation.name; }

}  // namespace pm::test
