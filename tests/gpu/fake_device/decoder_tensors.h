// SPDX-License-Identifier: Apache-2.0
// The tensors of a small decoder as transformers names them for Llama and its relatives.
#pragma once
#include <cstdint>
#include <string>

#include "tests/unit/worker/policy/synthetic.h"

namespace pm {

struct DecoderSizes {
  int64_t hidden, heads, kv_heads, head_dim, ffn, vocabulary;
};

/// Adds the embedding, `layers` layers, the last norm and an untied LM head to the checkpoint.
inline void add_decoder_tensors(policy::Synthetic& s, const DecoderSizes& of, int layers) {
  s.add("model.embed_tokens.weight", {of.vocabulary, of.hidden});
  for (int l = 0; l < layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) s.add(at + norm + ".weight", {of.hidden});
    s.linear(at + "self_attn.q_proj", of.heads * of.head_dim, of.hidden, false);
    s.linear(at + "self_attn.k_proj", of.kv_heads * of.head_dim, of.hidden, false);
    s.linear(at + "self_attn.v_proj", of.kv_heads * of.head_dim, of.hidden, false);
    s.linear(at + "self_attn.o_proj", of.hidden, of.heads * of.head_dim, false);
    s.linear(at + "mlp.gate_proj", of.ffn, of.hidden, false);
    s.linear(at + "mlp.up_proj", of.ffn, of.hidden, false);
    s.linear(at + "mlp.down_proj", of.hidden, of.ffn, false);
  }
  s.add("model.norm.weight", {of.hidden});
  s.add("lm_head.weight", {of.vocabulary, of.hidden});
}

}  // namespace pm
