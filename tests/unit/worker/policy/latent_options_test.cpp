// SPDX-License-Identifier: Apache-2.0
// Latents that read the input of a stack, and what reads them, on a tiny checkpoint.
#include <gmock/gmock.h>

#include "planner/partition.h"
#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Synthetic tiny_perceiver() {
  Synthetic s;
  s.config = {{"model_type", "perceiver"},
              {"architectures", {"PerceiverForMaskedLM"}},
              {"d_model", 16},
              {"d_latents", 20},
              {"num_latents", 7},
              {"num_blocks", 2},
              {"num_self_attends_per_block", 2},
              {"num_self_attention_heads", 5},
              {"num_cross_attention_heads", 2},
              {"qk_channels", 30},
              {"v_channels", 20},
              {"cross_attention_widening_factor", 3},
              {"vocab_size", 101},
              {"max_position_embeddings", 11}};
  const auto block = [&](const std::string& at, int64_t width, int64_t rows, int64_t keys, int64_t values,
                         int64_t ffn) {
    s.norm(at + "attention.self.layernorm1", width);
    if (rows > 0) s.norm(at + "attention.self.layernorm2", rows);
    s.linear(at + "attention.self.query", keys, width);
    s.linear(at + "attention.self.key", keys, rows > 0 ? rows : width);
    s.linear(at + "attention.self.value", values, rows > 0 ? rows : width);
    s.linear(at + "attention.output.dense", width, values);
    s.norm(at + "layernorm", width);
    s.linear(at + "mlp.dense1", ffn, width);
    s.linear(at + "mlp.dense2", width, ffn);
  };
  s.add("perceiver.input_preprocessor.embeddings.weight", {101, 16});
  s.add("perceiver.input_preprocessor.position_embeddings.weight", {11, 16});
  s.add("perceiver.embeddings.latents", {7, 20});
  block("perceiver.encoder.cross_attention.", 20, 16, 30, 20, 60);
  for (int l = 0; l < 2; ++l) block("perceiver.encoder.self_attends." + std::to_string(l) + ".", 20, 0, 30, 20, 20);
  s.add("perceiver.decoder.output_position_encodings.position_embeddings", {11, 16});
  block("perceiver.decoder.decoding_cross_attention.", 16, 20, 256, 16, 16);
  s.add("embedding_decoder.bias", {101});
  return s;
}

const Stack& stack(const Resolved& resolved) { return resolved.model.stacks[0]; }

TEST(Latents, HaveOwnWidthsAndHeads) {
  const Resolved resolved(tiny_perceiver());
  ASSERT_TRUE(stack(resolved).input.latents.has_value());
  const CrossBlock& block = stack(resolved).input.latents->block;
  EXPECT_THAT(stack(resolved).input.latents->vectors.shape, ElementsAre(7, 20));
  EXPECT_EQ(block.attention.heads, 2);
  EXPECT_EQ(block.attention.head_dim, 15);
  EXPECT_EQ(block.attention.value_dim, 10);
  EXPECT_TRUE(block.adds_queries && block.source_norm);
  EXPECT_THAT(block.attention.key.weight.shape, ElementsAre(30, 16));
  EXPECT_THAT(block.attention.out.weight.shape, ElementsAre(20, 20));
  EXPECT_EQ(block.mlp.width(), 60);
  EXPECT_THAT(resolved.model.not_loaded, IsEmpty());
}

TEST(Latents, AreReadByQueriesOfAnotherWidth) {
  const Resolved resolved(tiny_perceiver());
  ASSERT_TRUE(stack(resolved).output.queries.has_value());
  const OutputQueries& queries = *stack(resolved).output.queries;
  EXPECT_THAT(queries.vectors->shape, ElementsAre(11, 16));
  EXPECT_EQ(queries.width, 16);
  EXPECT_FALSE(queries.block.adds_queries);
  EXPECT_EQ(queries.block.attention.heads, 8);
  EXPECT_THAT(queries.block.attention.value.weight.shape, ElementsAre(16, 20));
  EXPECT_EQ(resolved.param("heads.mlm.logits.weight").shares, "text.token") << "scores are those of embeddings";
}

TEST(ValueWidth, CutsKeysAndValuesByHeads) {
  const Resolved resolved(tiny_perceiver());
  for (const char* name : {"query", "key", "value", "out"})
    EXPECT_EQ(resolved.param("text.layers.0.attn." + std::string(name) + ".weight").units, 5) << name;
  const Partition three = make_partition(resolved.model.metadata, 3, DType::F32);
  const Param& keys = resolved.param("text.latents.attn.key.weight");
  EXPECT_EQ(three.range("text", Axis::Heads, keys.units, 0).size(), 1);
  EXPECT_EQ(three.range("text", Axis::Heads, keys.units, 2).size(), 0) << "two heads of three ranks";
}

TEST(Blocks, RunTheSameWeightsAgainAndRepeatTheStateBetween) {
  const Resolved resolved(tiny_perceiver());
  ASSERT_EQ(stack(resolved).layers.size(), 4U);
  EXPECT_EQ(resolved.param("text.layers.2.attn.query.weight").shares, "text.layers.0.attn.query.weight");
  for (size_t l = 0; l < 4; ++l) EXPECT_EQ(stack(resolved).layers[l].repeats_state, l == 2) << l;
  EXPECT_EQ(hidden_state_of(stack(resolved), 1), 1);
  EXPECT_EQ(hidden_state_of(stack(resolved), 2), 3);
  EXPECT_EQ(hidden_state_of(stack(resolved), 4), 5);
  EXPECT_TRUE(changes_rows(stack(resolved)));
  EXPECT_FALSE(resizes_rows(stack(resolved)) || reads_padding(stack(resolved)));
}

TEST(Latents, RefuseWhatDoesNotFit) {
  Synthetic other = tiny_perceiver();
  other.config["num_latents"] = 0;
  EXPECT_THAT(refusal(other, Reason::ModelUnreadable), HasSubstr("count is 0"));
  other.config["num_latents"] = 8;
  EXPECT_THAT(refusal(other, Reason::ModelUnreadable), HasSubstr("perceiver.embeddings.latents"));
  const std::string grouped = "extends: perceiver\nstacks: {text: {attn: {kv_heads: 1}}}\n";
  EXPECT_THAT(refusal(tiny_perceiver(), Reason::ModelUnreadable, grouped), HasSubstr("a width of 4 for values"));
}

}  // namespace
}  // namespace pm::policy
