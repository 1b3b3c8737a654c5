// SPDX-License-Identifier: Apache-2.0
// Latent attention on tiny checkpoints: sizes, rows of the tensor that keys and values share, metadata, refusals.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t hidden = 12, heads = 3, nope = 4, rope = 2, values = 5, rank = 7, query_rank = 6;

/// DeepSeek-V3 in small: one dense layer, and one that predicts further ahead.
Synthetic tiny_deepseek(bool low_rank_q = true) {
  Synthetic model;
  model.config = {{"model_type", "deepseek_v3"},
                  {"architectures", {"DeepseekV3ForCausalLM"}},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_hidden_layers", 1},
                  {"num_attention_heads", heads},
                  {"num_key_value_heads", heads},
                  {"intermediate_size", 10},
                  {"first_k_dense_replace", 1},
                  {"q_lora_rank", low_rank_q ? nlohmann::json(query_rank) : nlohmann::json()},
                  {"kv_lora_rank", rank},
                  {"qk_nope_head_dim", nope},
                  {"qk_rope_head_dim", rope},
                  {"v_head_dim", values},
                  {"rope_scaling",
                   {{"type", "yarn"},
                    {"factor", 40},
                    {"mscale", 1.0},
                    {"mscale_all_dim", 1.0},
                    {"original_max_position_embeddings", 4096}}}};
  model.add("model.embed_tokens.weight", {11, hidden});
  model.add("lm_head.weight", {11, hidden});
  model.add("model.norm.weight", {hidden});
  const std::string at = "model.layers.0.", self = at + "self_attn.";
  model.add(at + "input_layernorm.weight", {hidden});
  model.add(at + "post_attention_layernorm.weight", {hidden});
  if (low_rank_q) {
    model.linear(self + "q_a_proj", query_rank, hidden, false);
    model.add(self + "q_a_layernorm.weight", {query_rank});
    model.linear(self + "q_b_proj", heads * (nope + rope), query_rank, false);
  } else {
    model.linear(self + "q_proj", heads * (nope + rope), hidden, false);
  }
  model.linear(self + "kv_a_proj_with_mqa", rank + rope, hidden, false);
  model.add(self + "kv_a_layernorm.weight", {rank});
  model.linear(self + "kv_b_proj", heads * (nope + values), rank, false);
  model.linear(self + "o_proj", hidden, heads * values, false);
  for (const auto& [name, out, in] : {std::tuple{"gate_proj", int64_t{10}, hidden},
                                      {"up_proj", int64_t{10}, hidden},
                                      {"down_proj", hidden, int64_t{10}}})
    model.linear(at + "mlp." + name, out, in, false);
  model.linear("model.layers.1.eh_proj", hidden, 2 * hidden, false);
  return model;
}

TEST(LatentAttention, HasItsSizesItsNormsAndTheScaleOfYarn) {
  const Resolved resolved(tiny_deepseek());
  const Attention& a = resolved.model.stacks[0].layers[0].attention;
  ASSERT_TRUE(a.latent);
  EXPECT_EQ(a.latent->rank, rank);
  EXPECT_EQ(a.latent->rotary_dims, rope);
  EXPECT_EQ(a.latent->width(), rank + rope);
  EXPECT_EQ(a.head_dim, nope + rope);
  EXPECT_EQ(a.value_dim, values);
  EXPECT_EQ(a.kv_heads, heads);
  EXPECT_EQ(a.latent->norm.eps, 1e-6);
  EXPECT_EQ(a.latent->query_norm->eps, 1e-6);
  EXPECT_EQ(a.rotary->style, RotaryStyle::Interleaved);
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(a.scale, std::pow(6.0, -0.5) * mscale * mscale);
  EXPECT_THAT(a.query.weight.shape, ElementsAre(heads * (nope + rope), query_rank));
  EXPECT_THAT(a.key.weight.shape, ElementsAre(heads * nope, rank));
  EXPECT_THAT(a.value.weight.shape, ElementsAre(heads * values, rank));
  EXPECT_THAT(a.out.weight.shape, ElementsAre(hidden, heads * values));
  EXPECT_THAT(resolved.model.not_loaded, ElementsAre("model.layers.1.eh_proj.weight"));
}

TEST(LatentAttention, KeysAndValuesOfAHeadLieTogetherAndAreCutByHeads) {
  const Resolved resolved(tiny_deepseek());
  const auto rows = [&](const char* name, Range range) {
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const TensorSlice& slice : tensor_slices(resolved.param(name), range))
      found.push_back({slice.row, slice.rows});
    return found;
  };
  EXPECT_THAT(rows("decoder.layers.0.attn.key.weight", {0, 3}),
              ElementsAre(std::pair(0, 4), std::pair(9, 4), std::pair(18, 4)));
  EXPECT_THAT(rows("decoder.layers.0.attn.value.weight", {1, 3}), ElementsAre(std::pair(13, 5), std::pair(22, 5)));
  const Partition partition = make_partition(resolved.model.metadata, 2, DType::F32);
  EXPECT_EQ(rank_range(resolved.param("decoder.layers.0.attn.key.weight"), partition, 0).size(), 2);
  EXPECT_EQ(rank_range(resolved.param("decoder.layers.0.attn.latent.weight"), partition, 1), (Range{0, 1}));
  EXPECT_EQ(rank_range(resolved.param("decoder.layers.0.attn.query_down.weight"), partition, 0), (Range{0, 1}));
  // of I8, all matrices but what absorbed products read along the other dimension
  EXPECT_EQ(code_bits(resolved.param("decoder.layers.0.attn.latent.weight"), DType::I8), 8);
  EXPECT_EQ(code_bits(resolved.param("decoder.layers.0.attn.query.weight"), DType::I8), 8);
  EXPECT_EQ(code_bits(resolved.param("decoder.layers.0.attn.key.weight"), DType::I8), 0);
  EXPECT_EQ(code_bits(resolved.param("decoder.layers.0.attn.value.weight"), DType::I8), 0);
}

TEST(LatentAttention, MetadataHasTheRowOfATokenAndProjectionsApart) {
  const Resolved resolved(tiny_deepseek());
  const ModelMetadata& metadata = resolved.model.metadata;
  EXPECT_EQ(metadata.stacks[0].latent, rank + rope);
  int64_t elements = 0;
  for (const Part& part : metadata.parts)
    if (part.axis == Axis::Latent) elements += part.units * part.elements_per_unit * part.count;
  EXPECT_EQ(elements, (query_rank + rank + rope) * hidden);
}

TEST(LatentAttention, QueriesMayReadTheStates) {
  const Resolved resolved(tiny_deepseek(false));
  const Attention& a = resolved.model.stacks[0].layers[0].attention;
  EXPECT_FALSE(a.latent->query_down);
  EXPECT_FALSE(a.latent->query_norm);
  EXPECT_THAT(a.query.weight.shape, ElementsAre(heads * (nope + rope), hidden));
  EXPECT_EQ(a.query.weight.tensor->name, "model.layers.0.self_attn.q_proj.weight");
}

TEST(LatentAttention, IsRefusedByNameWhereSizesDoNotFit) {
  Synthetic model = tiny_deepseek();
  model.config["qk_rope_head_dim"] = 3;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("rotary dimensions is 3"));
  model = tiny_deepseek();
  model.config["qk_nope_head_dim"] = 0;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("of which 2 dimensions are rotated"));
  model = tiny_deepseek();
  model.config["kv_lora_rank"] = 0;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("rank is 0"));
  model = tiny_deepseek();
  model.tensors["model.layers.0.self_attn.kv_b_proj.weight"].shape = {26, rank};
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("kv_b_proj.weight\" has shape [26, 7]"));
  model = tiny_deepseek();
  model.tensors.erase("model.layers.0.self_attn.kv_a_layernorm.weight");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("kv_a_layernorm"));
  model = tiny_deepseek();
  model.config["scoring_func"] = "softmax";
  EXPECT_THAT(refusal(model, Reason::UnknownArchitecture), HasSubstr("scoring_func"));
}

TEST(LatentAttention, APolicySaysAllOfItAndNothingElse) {
  const auto with = [](const std::string& attn) {
    return refusal(tiny_deepseek(), Reason::UnsupportedPolicy,
                   "extends: deepseek_v3\nmodel_type: deepseek_v3\nstacks:\n  decoder:\n    attn:\n" + attn);
  };
  EXPECT_THAT(with("      k: self_attn.k_proj\n"), HasSubstr("attention with \"latent\" has no \"k\""));
  EXPECT_THAT(with("      query_norm: self_attn.q_norm\n"), HasSubstr("has no \"query_norm\""));
  EXPECT_THAT(with("      value_dim: ~\n"), HasSubstr("needs \"value_dim\""));
  EXPECT_THAT(with("      latent: {kv_norm: ~}\n"), HasSubstr("latent needs \"kv_norm\""));
  EXPECT_THAT(with("      latent: {q_down: ~}\n"), HasSubstr("\"q_norm\" is of what \"q_down\" makes"));
}

/// DeepSeek-V3.2 in small: the index of its layer is not read.
TEST(LatentAttention, AnIndexBoundsTheLengthAndIsNotLoaded) {
  Synthetic model = tiny_deepseek();
  model.config["model_type"] = "deepseek_v32";
  model.config["architectures"] = {"DeepseekV32ForCausalLM"};
  model.config["max_position_embeddings"] = 4096;
  model.config["index_topk"] = 64;
  model.linear("model.layers.0.self_attn.indexer.wk", 4, hidden, false);
  const Resolved resolved(model);
  EXPECT_EQ(resolved.model.stacks[0].positions, 64);
  EXPECT_THAT(resolved.model.not_loaded,
              ElementsAre("model.layers.0.self_attn.indexer.wk.weight", "model.layers.1.eh_proj.weight"));
  model.config["max_position_embeddings"] = 32;
  EXPECT_EQ(Resolved(model).model.stacks[0].positions, 32);
}

}  // namespace
}  // namespace pm::policy
