// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/policy/full_size.h"

namespace pm::policy {

namespace {

std::string numbered(const std::string& before, int layer) { return before + std::to_string(layer) + "."; }

Synthetic gpt_neo_2_7b() {
  Synthetic s;
  s.dtype = "F16";
  s.config = {{"model_type", "gpt_neo"},
              {"architectures", {"GPTNeoForCausalLM"}},
              {"hidden_size", 2560},
              {"num_layers", 32},
              {"num_heads", 20},
              {"vocab_size", 50257},
              {"max_position_embeddings", 2048},
              {"window_size", 256},
              {"intermediate_size", nullptr},
              {"attention_types", nlohmann::json::parse(R"([[["global", "local"], 16]])")}};
  s.add("transformer.wte.weight", {50257, 2560});
  s.add("transformer.wpe.weight", {2048, 2560});
  for (int l = 0; l < 32; ++l) {
    const std::string at = numbered("transformer.h.", l);
    for (const char* name : {"ln_1", "ln_2"}) s.norm(at + name, 2560);
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) s.linear(at + "attn.attention." + name, 2560, 2560, false);
    s.linear(at + "attn.attention.out_proj", 2560, 2560);
    s.linear(at + "mlp.c_fc", 10240, 2560);
    s.linear(at + "mlp.c_proj", 2560, 10240);
  }
  s.norm("transformer.ln_f", 2560);
  return s;
}

Synthetic gpt_j_6b() {
  Synthetic s;
  s.dtype = "F16";
  s.config = {{"model_type", "gptj"}, {"architectures", {"GPTJForCausalLM"}},
              {"n_embd", 4096},       {"n_layer", 28},
              {"n_head", 16},         {"n_inner", nullptr},
              {"n_positions", 2048},  {"rotary_dim", 64},
              {"vocab_size", 50400}};
  s.add("transformer.wte.weight", {50400, 4096});
  for (int l = 0; l < 28; ++l) {
    const std::string at = numbered("transformer.h.", l);
    s.norm(at + "ln_1", 4096);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      s.linear(at + "attn." + name, 4096, 4096, false);
    s.linear(at + "mlp.fc_in", 16384, 4096);
    s.linear(at + "mlp.fc_out", 4096, 16384);
  }
  s.norm("transformer.ln_f", 4096);
  s.linear("lm_head", 50400, 4096);
  return s;
}

/// One attention of T5 with 32 heads of 128 over a width of 1024.
void t5_attention(Synthetic& s, const std::string& at, const std::string& kind) {
  for (const char* name : {"q", "k", "v"}) s.linear(at + kind + "." + name, 4096, 1024, false);
  s.linear(at + kind + ".o", 1024, 4096, false);
  s.add(at + "layer_norm.weight", {1024});
}

Synthetic t5_3b() {
  Synthetic s;
  s.config = {{"model_type", "t5"}, {"architectures", {"T5ForConditionalGeneration"}},
              {"d_model", 1024},    {"d_kv", 128},
              {"d_ff", 16384},      {"num_layers", 24},
              {"num_heads", 32},    {"vocab_size", 32128}};
  s.add("shared.weight", {32128, 1024});
  for (const std::string stack : {"encoder.", "decoder."}) {
    const std::string feed_forward = stack == "encoder." ? "layer.1." : "layer.2.";
    for (int l = 0; l < 24; ++l) {
      const std::string at = numbered(stack + "block.", l);
      t5_attention(s, at + "layer.0.", "SelfAttention");
      if (stack == "decoder.") t5_attention(s, at + "layer.1.", "EncDecAttention");
      s.linear(at + feed_forward + "DenseReluDense.wi", 16384, 1024, false);
      s.linear(at + feed_forward + "DenseReluDense.wo", 1024, 16384, false);
      s.add(at + feed_forward + "layer_norm.weight", {1024});
    }
    s.add(stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", {32, 32});
    s.add(stack + "final_layer_norm.weight", {1024});
  }
  return s;
}

Synthetic llama_7b() {
  Synthetic s;
  s.dtype = "F16";
  s.config = {{"model_type", "llama"},   {"architectures", {"LlamaForCausalLM"}},
              {"hidden_size", 4096},     {"intermediate_size", 11008},
              {"num_hidden_layers", 32}, {"num_attention_heads", 32},
              {"vocab_size", 32000},     {"max_position_embeddings", 2048}};
  s.add("model.embed_tokens.weight", {32000, 4096});
  for (int l = 0; l < 32; ++l) {
    const std::string at = numbered("model.layers.", l);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      s.linear(at + "self_attn." + name, 4096, 4096, false);
    for (const char* name : {"gate_proj", "up_proj"}) s.linear(at + "mlp." + name, 11008, 4096, false);
    s.linear(at + "mlp.down_proj", 4096, 11008, false);
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) s.add(at + name + ".weight", {4096});
  }
  s.add("model.norm.weight", {4096});
  s.linear("lm_head", 32000, 4096, false);
  return s;
}

Synthetic falcon_7b() {
  Synthetic s;
  s.dtype = "BF16";
  s.config = {{"model_type", "falcon"},    {"architectures", {"FalconForCausalLM"}},
              {"hidden_size", 4544},       {"num_hidden_layers", 32},
              {"num_attention_heads", 71}, {"multi_query", true},
              {"vocab_size", 65024}};
  s.add("transformer.word_embeddings.weight", {65024, 4544});
  for (int l = 0; l < 32; ++l) {
    const std::string at = numbered("transformer.h.", l);
    s.norm(at + "input_layernorm", 4544);
    s.linear(at + "self_attention.query_key_value", (71 + 2) * 64, 4544, false);
    s.linear(at + "self_attention.dense", 4544, 4544, false);
    s.linear(at + "mlp.dense_h_to_4h", 4 * 4544, 4544, false);
    s.linear(at + "mlp.dense_4h_to_h", 4544, 4 * 4544, false);
  }
  s.norm("transformer.ln_f", 4544);
  return s;
}

}  // namespace

std::vector<FullSize> full_sizes() {
  return {{"GPT-Neo-2.7B", gpt_neo_2_7b(), 2651307520},
          {"GPT-J-6B", gpt_j_6b(), 6050882784},
          {"T5-3B", t5_3b(), 2851598336},
          {"LLaMA-7B", llama_7b(), 6738415616},
          {"Falcon-7B", falcon_7b(), 6921720704}};
}

}  // namespace pm::policy
