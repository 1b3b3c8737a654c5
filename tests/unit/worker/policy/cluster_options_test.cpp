// SPDX-License-Identifier: Apache-2.0
// Vocabularies in clusters and memories, on a tiny Transformer-XL.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Two layers; 20 ids in clusters of 6, 8 and 6, whose embeddings have 8, 4 and 2 numbers.
Synthetic tiny_transfo_xl(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", "transfo-xl"},
                           {"architectures", {"TransfoXLLMHeadModel"}},
                           {"d_model", 8},
                           {"d_embed", 8},
                           {"n_layer", 2},
                           {"n_head", 2},
                           {"d_head", 4},
                           {"d_inner", 10},
                           {"vocab_size", 20},
                           {"cutoffs", {6, 14}},
                           {"div_val", 2},
                           {"mem_len", 5},
                           {"clamp_len", 3},
                           {"tie_projs", {false, true, true}}};
  config.update(changes);
  Synthetic made;
  made.config = config;
  const std::vector<std::pair<int64_t, int64_t>> clusters{{6, 8}, {8, 4}, {6, 2}};
  for (size_t i = 0; i < clusters.size(); ++i) {
    const auto& [ids, width] = clusters[i];
    const std::string number = std::to_string(i);
    made.add("transformer.word_emb.emb_layers." + number + ".weight", {ids, width});
    made.add("transformer.word_emb.emb_projs." + number, {8, width});
    made.add("crit.out_layers." + number + ".bias", {ids});
  }
  made.add("crit.out_projs.0", {8, 8});
  made.add("crit.cluster_weight", {2, 8});
  made.add("crit.cluster_bias", {2});
  for (const std::string layer : {"transformer.layers.0.", "transformer.layers.1."}) {
    const std::string attention = layer + "dec_attn.", mlp = layer + "pos_ff.";
    made.linear(attention + "qkv_net", 24, 8, false);
    for (const char* name : {"o_net", "r_net"}) made.linear(attention + name, 8, 8, false);
    for (const char* name : {"r_w_bias", "r_r_bias"}) made.add(attention + name, {2, 4});
    made.linear(mlp + "CoreNet.0", 10, 8);
    made.linear(mlp + "CoreNet.3", 8, 10);
    for (const std::string& block : {attention, mlp}) made.norm(block + "layer_norm", 8);
  }
  return made;
}

TEST(Clusters, HaveTablesAndProjectionsOfTheirWidths) {
  const Resolved resolved(tiny_transfo_xl());
  const Input& input = resolved.model.stacks[0].input;
  ASSERT_EQ(input.clusters.size(), 3u);
  EXPECT_THAT(input.token->shape, ElementsAre(6, 8));
  EXPECT_FALSE(input.clusters[0].table.has_value()) << "it is the stack's own";
  EXPECT_THAT(input.clusters[2].table->shape, ElementsAre(6, 2));
  EXPECT_THAT(input.clusters[2].projection.shape, ElementsAre(8, 2));
  EXPECT_EQ(resolved.model.stacks[0].vocab, 20);
}

TEST(Clusters, OfScoresShareTablesAndProjections) {
  const Resolved resolved(tiny_transfo_xl());
  const auto* spec = resolved.model.heads[0].as<ClustersSpec>();
  ASSERT_TRUE(spec && spec->others);
  EXPECT_EQ(resolved.model.heads[0].scores(), 20);
  EXPECT_THAT(spec->others->weight.shape, ElementsAre(2, 8));
  const auto& token = resolved.model.stacks[0].input;
  EXPECT_EQ(spec->clusters[2].scores.weight.tensor, token.clusters[2].table->tensor);
  EXPECT_EQ(spec->clusters[2].projection.tensor, token.clusters[2].projection.tensor) << "tie_projs says so";
  EXPECT_NE(spec->clusters[0].projection.tensor, token.clusters[0].projection.tensor);
}

TEST(Clusters, ThatDoNotDivideTheVocabularyAreRefused) {
  const auto refused = [](const nlohmann::json& changes) {
    return refusal(tiny_transfo_xl(changes), Reason::ModelUnreadable);
  };
  EXPECT_THAT(refused({{"cutoffs", {14, 6}}}), HasSubstr("clusters that end at [14,6,20], expected ascending ids"));
  EXPECT_THAT(refused({{"cutoffs", {6, 21}}}), HasSubstr("expected ascending ids"));
  EXPECT_THAT(refused({{"cutoffs", {6, "x"}}}), HasSubstr("expected ascending ids"));
  EXPECT_THAT(refused({{"cutoffs", 6}}), HasSubstr("expected a list"));
  EXPECT_THAT(refused({{"div_val", 4}, {"d_embed", 8}}), HasSubstr("nothing is left of the last"));
  EXPECT_THAT(refused({{"div_val", 0}}), HasSubstr("divided by 0"));
}

TEST(Memory, IsAsLongAsTheWindow) {
  const Resolved resolved(tiny_transfo_xl());
  const Stack& stack = resolved.model.stacks[0];
  ASSERT_TRUE(stack.memory.has_value());
  EXPECT_EQ(stack.memory->length, 5);
  EXPECT_EQ(stack.memory->input, "mems");
  for (const Layer& layer : stack.layers) {
    EXPECT_EQ(layer.attention.window, 5);
    EXPECT_TRUE(layer.attention.queries_apart);
  }
  const Resolved without(tiny_transfo_xl({{"mem_len", 0}, {"same_length", false}}));
  EXPECT_FALSE(without.model.stacks[0].memory.has_value());
  EXPECT_FALSE(without.model.stacks[0].layers[0].attention.queries_apart);
}

TEST(Memory, OfAnImpossibleLengthIsRefused) {
  EXPECT_THAT(refusal(tiny_transfo_xl({{"mem_len", 1 << 30}}), Reason::ModelUnreadable),
              HasSubstr("a memory of 1073741824 tokens, expected 1 to"));
}

}  // namespace
}  // namespace pm::policy
