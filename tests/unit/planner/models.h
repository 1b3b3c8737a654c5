// SPDX-License-Identifier: Apache-2.0
// Metadata of models whose sizes are known, and of made-up models.
#pragma once
#include <random>
#include <tuple>

#include "planner/model_metadata.h"

namespace pm::test {

struct Sizes {
  int layers = 12;
  int64_t hidden = 768, heads = 12, kv_heads = 12, head_dim = 64, ffn = 3072, vocab = 50257, positions = 1024;
  DType dtype = DType::F32;
  bool qkv_bias = true;
};

/// Returns a GPT-2-shaped decoder with a tied head; its parts follow the partition axes of the parameters.
inline ModelMetadata decoder(const Sizes& s) {
  ModelMetadata metadata{.model_type = "gpt2", .architecture = "GPT2LMHeadModel", .task = "generate", .dtype = s.dtype};
  metadata.stacks = {
      {"decoder", s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocab, s.positions, true, 0, 0, false}};
  const auto layer = [&](Axis axis, int64_t units, int64_t each) {
    metadata.parts.push_back({"decoder", 0, s.layers, axis, units, each, s.dtype, false});
  };
  const int64_t bias = s.qkv_bias ? 1 : 0;
  metadata.parts.push_back(
      {"decoder", stack_input, 1, Axis::Vocab, s.vocab, s.hidden, s.dtype, false, {{"", stack_input}}});
  metadata.parts.push_back({"decoder", -1, 1, Axis::None, 1, 2 * s.hidden, s.dtype, false});
  layer(Axis::Heads, s.heads, s.head_dim * (2 * s.hidden + bias));      // q and its bias, out's rows
  layer(Axis::KvRows, s.kv_heads * s.head_dim, 2 * (s.hidden + bias));  // k and v
  layer(Axis::Ffn, s.ffn, 2 * s.hidden + 1);                            // up and its bias, down's rows
  layer(Axis::None, 1, 6 * s.hidden);                                   // two norms, biases of out and down
  if (s.positions > 0)
    metadata.parts.push_back({"decoder", -1, 1, Axis::Positions, s.positions, s.hidden, s.dtype, false});
  for (const Part& part : metadata.parts) metadata.parameters += part.units * part.elements_per_unit * part.count;
  metadata.checkpoint_bytes = metadata.parameters * size_of(s.dtype);
  return metadata;
}

/// Returns the same model with quantised matrices, as a worker's metadata names them: sizes are multiples of 32.
inline ModelMetadata with_matrices(ModelMetadata metadata) {
  const StackMetadata& s = metadata.stacks[0];
  for (Part& part : metadata.parts) {
    if (part.axis == Axis::Vocab) part.quantised = {s.hidden, s.hidden / 32, 0};
    if (part.axis == Axis::Heads) {
      part.quantised = {2 * s.head_dim * s.hidden, 2 * s.head_dim * s.hidden / 32, 0};
      part.quantised.rows = s.head_dim, part.quantised.shared_rows = s.hidden;
    }
    if (part.axis == Axis::KvRows) part.quantised = {2 * s.hidden, 2 * s.hidden / 32, 0, 0, 0, 2};
    if (part.axis == Axis::Ffn) part.quantised = {2 * s.hidden, s.hidden / 32, s.hidden, 0, 0, 1, s.hidden};
  }
  return metadata;
}

/// GPT-Neo-2.7B in fp16: 2,651,307,520 parameters (reference: EleutherAI/gpt-neo-2.7B, config.json). q, k and v have no
/// bias.
inline ModelMetadata gpt_neo_2_7b() {
  ModelMetadata metadata = decoder({.layers = 32,
                                    .hidden = 2560,
                                    .heads = 20,
                                    .kv_heads = 20,
                                    .head_dim = 128,
                                    .ffn = 10240,
                                    .vocab = 50257,
                                    .positions = 2048,
                                    .dtype = DType::F16,
                                    .qkv_bias = false});
  metadata.model_type = "gpt_neo";
  metadata.architecture = "GPTNeoForCausalLM";
  return metadata;
}

/// Returns a T5-shaped encoder and decoder with one token embedding, which the tied head reads as well, and relative
/// position biases that all layers of a stack share.
inline ModelMetadata encoder_decoder(int encoder_layers, int decoder_layers, int64_t hidden = 512, int64_t heads = 8,
                                     int64_t vocab = 32128) {
  ModelMetadata metadata{
      .model_type = "t5", .architecture = "T5ForConditionalGeneration", .task = "generate", .dtype = DType::F32};
  const int64_t dim = hidden / heads, ffn = 4 * hidden;
  metadata.parts.push_back({"encoder",
                            stack_input,
                            1,
                            Axis::Vocab,
                            vocab,
                            hidden,
                            DType::F32,
                            false,
                            {{"decoder", stack_input}, {"", stack_input}}});
  for (const auto& [name, layers, cross] : {std::tuple{"encoder", encoder_layers, 0}, {"decoder", decoder_layers, 1}}) {
    metadata.stacks.push_back(
        {name, layers, hidden, heads, heads, dim, ffn, vocab, 0, cross == 1, 0, 0, 0, cross == 1});
    metadata.parts.push_back({name, 0, layers, Axis::Heads, heads, 2 * (1 + cross) * dim * hidden, DType::F32, false});
    metadata.parts.push_back({name, 0, layers, Axis::KvRows, heads * dim, 2 * (1 + cross) * hidden, DType::F32, false});
    metadata.parts.push_back({name, 0, layers, Axis::Ffn, ffn, 2 * hidden, DType::F32, false});
    metadata.parts.push_back({name, 0, layers, Axis::None, 1, (2 + cross) * hidden, DType::F32, false});
    metadata.parts.push_back({name, 0, 1, Axis::Heads, heads, 32, DType::F32, false, {}});
    if (layers > 1) metadata.parts.back().also = {{name, 1, layers - 1}};
    metadata.parts.push_back({name, stack_output, 1, Axis::None, 1, hidden, DType::F32, false});
  }
  for (const Part& part : metadata.parts) metadata.parameters += part.units * part.elements_per_unit * part.count;
  metadata.checkpoint_bytes = metadata.parameters * 4;
  return metadata;
}

/// Returns an ALBERT-shaped encoder: `groups` layers whose weights are shared by contiguous layers.
inline ModelMetadata repeating_encoder(int layers, int groups, int64_t hidden = 768, int64_t heads = 12) {
  ModelMetadata metadata{.model_type = "albert", .architecture = "AlbertModel", .task = "embed", .dtype = DType::F32};
  metadata.stacks = {
      {"encoder", layers, hidden, heads, heads, hidden / heads, 4 * hidden, 30000, 512, false, 0, false}};
  metadata.parts.push_back({"encoder", stack_input, 1, Axis::Vocab, 30000, 128, DType::F32, false});
  metadata.parts.push_back({"encoder", stack_output, 1, Axis::None, 1, hidden * hidden, DType::F32, false});
  for (int group = 0; group < groups; ++group) {
    const int first = group * layers / groups, end = (group + 1) * layers / groups;
    for (const auto& [axis, units, each] : {std::tuple{Axis::Heads, heads, 2 * hidden * hidden / heads},
                                            {Axis::KvRows, hidden, 2 * hidden},
                                            {Axis::Ffn, 4 * hidden, 2 * hidden}}) {
      metadata.parts.push_back({"encoder", first, 1, axis, units, each, DType::F32, false});
      if (end - first > 1) metadata.parts.back().also = {{"encoder", first + 1, end - first - 1}};
    }
  }
  for (const Part& part : metadata.parts) metadata.parameters += part.units * part.elements_per_unit * part.count;
  metadata.checkpoint_bytes = metadata.parameters * 4;
  return metadata;
}

/// Returns a decoder of random sizes with at least `ranks` heads.
inline ModelMetadata random_decoder(std::mt19937& random, int ranks) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Sizes s;
  const int64_t group = pick(1, 4);
  s.kv_heads = pick((ranks + group - 1) / group, (ranks + group - 1) / group + 24);
  s.heads = s.kv_heads * group;
  s.head_dim = pick(1, 16) * 8;
  s.hidden = s.heads * s.head_dim;
  s.layers = static_cast<int>(pick(1, 48));
  s.ffn = pick(1, 5 * s.hidden);
  s.vocab = pick(ranks, 200000);
  s.positions = pick(16, 4096);
  s.dtype = pick(0, 1) ? DType::F32 : DType::BF16;
  return decoder(s);
}

}  // namespace pm::test
