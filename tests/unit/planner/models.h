// Facts of models whose sizes are known, and of models that nobody has.
#pragma once
#include <random>

#include "planner/facts.h"

namespace pm::test {

struct Sizes {
  int layers = 12;
  int64_t hidden = 768, heads = 12, kv_heads = 12, head_dim = 64, ffn = 3072, vocab = 50257, positions = 1024;
  DType dtype = DType::F32;
  bool qkv_bias = true;
};

/// A GPT-2-shaped decoder, tied head; the parts are what its parameters are cut by.
inline Facts decoder(const Sizes& s) {
  Facts facts{.model_type = "gpt2", .architecture = "GPT2LMHeadModel", .task = "generate", .dtype = s.dtype};
  facts.stacks = {{"decoder", s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocab, s.positions, true, false}};
  const auto layer = [&](Axis axis, int64_t units, int64_t each) { facts.parts.push_back({"decoder", 0, s.layers, axis, units, each, s.dtype, false}); };
  const int64_t bias = s.qkv_bias ? 1 : 0;
  facts.parts.push_back({"decoder", -1, 1, Axis::Vocab, s.vocab, s.hidden, s.dtype, false});
  facts.parts.push_back({"decoder", -1, 1, Axis::None, 1, 2 * s.hidden, s.dtype, false});
  layer(Axis::Heads, s.heads, s.head_dim * (2 * s.hidden + bias));          // q and its bias, out's rows
  layer(Axis::KvRows, s.kv_heads * s.head_dim, 2 * (s.hidden + bias));      // k and v
  layer(Axis::Ffn, s.ffn, 2 * s.hidden + 1);                                // up and its bias, down's rows
  layer(Axis::None, 1, 6 * s.hidden);                                       // two norms, biases of out and down
  if (s.positions > 0) facts.parts.push_back({"decoder", -1, 1, Axis::Positions, s.positions, s.hidden, s.dtype, false});
  for (const Part& part : facts.parts) facts.parameters += part.units * part.elements_per_unit * part.count;
  facts.checkpoint_bytes = facts.parameters * size_of(s.dtype);
  return facts;
}

/// GPT-Neo-2.7B in fp16: 2,651,307,520 parameters (reference: EleutherAI/gpt-neo-2.7B, config.json). q, k and v have no bias.
inline Facts gpt_neo_2_7b() {
  Facts facts = decoder({.layers = 32, .hidden = 2560, .heads = 20, .kv_heads = 20, .head_dim = 128, .ffn = 10240, .vocab = 50257,
                         .positions = 2048, .dtype = DType::F16, .qkv_bias = false});
  facts.model_type = "gpt_neo";
  facts.architecture = "GPTNeoForCausalLM";
  return facts;
}

/// A decoder of random sizes with at least `ranks` heads.
inline Facts random_decoder(std::mt19937& random, int ranks) {
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
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
