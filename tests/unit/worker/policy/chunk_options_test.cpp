// SPDX-License-Identifier: Apache-2.0
// Attention in chunks, two residual streams and axial positions, on a tiny checkpoint.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Synthetic tiny_reformer() {
  Synthetic s;
  s.config = {{"model_type", "reformer"},
              {"architectures", {"ReformerForMaskedLM"}},
              {"hidden_size", 20},
              {"num_attention_heads", 5},
              {"attention_head_size", 3},
              {"attn_layers", {"local", "lsh"}},
              {"feed_forward_size", 37},
              {"vocab_size", 101},
              {"max_position_embeddings", 100},
              {"axial_pos_shape", {7, 11}},
              {"axial_pos_embds_dim", {8, 12}},
              {"local_attn_chunk_length", 6},
              {"lsh_attn_chunk_length", 4},
              {"num_buckets", {4, 6}},
              {"num_hashes", 3},
              {"hash_seed", 9}};
  s.add("reformer.embeddings.word_embeddings.weight", {101, 20});
  s.add("reformer.embeddings.position_embeddings.weights.0", {7, 1, 8});
  s.add("reformer.embeddings.position_embeddings.weights.1", {1, 11, 12});
  for (int l = 0; l < 2; ++l) {
    const std::string at = "reformer.encoder.layers." + std::to_string(l) + ".";
    s.norm(at + "attention.layer_norm", 20);
    for (const char* name : {"query", "key", "value"}) {
      if (l == 1 && std::string(name) == "key") continue;
      const std::string query = l == 1 && std::string(name) == "query" ? "query_key" : name;
      s.linear(at + "attention.self_attention." + query, 15, 20, false);
    }
    s.linear(at + "attention.output.dense", 20, 15, false);
    s.norm(at + "feed_forward.layer_norm", 20);
    s.linear(at + "feed_forward.dense.dense", 37, 20);
    s.linear(at + "feed_forward.output.dense", 20, 37);
  }
  s.norm("reformer.encoder.layer_norm", 40);
  s.linear("lm_head.decoder", 101, 40, false);
  s.add("lm_head.bias", {101});
  return s;
}

const Attention& attention(const Resolved& resolved, size_t layer) {
  return resolved.model.stacks[0].layers[layer].attention;
}

TEST(Chunks, AreThoseOfTheLayer) {
  const Resolved resolved(tiny_reformer());
  const Chunks &local = *attention(resolved, 0).chunks, &hashed = *attention(resolved, 1).chunks;
  EXPECT_EQ(local.length, 6);
  EXPECT_FALSE(local.hashes.has_value());
  EXPECT_EQ(hashed.length, 4);
  ASSERT_TRUE(hashed.hashes.has_value());
  EXPECT_THAT(hashed.hashes->buckets, ElementsAre(4, 6));
  EXPECT_EQ(hashed.hashes->rounds, 3);
  EXPECT_EQ(hashed.hashes->seed, 9);
  EXPECT_EQ(attention(resolved, 1).key.weight.tensor, nullptr) << "queries are keys";
  EXPECT_EQ(resolved.param("encoder.layers.1.attn.query.weight").units, 5);
  EXPECT_EQ(resolved.model.metadata.stacks[0].query_block, 12) << "three rounds of a chunk";
}

TEST(Chunks, PadLongSequencesToAMultipleOfAll) {
  const Resolved resolved(tiny_reformer());
  const Chunks& chunks = *attention(resolved, 0).chunks;
  EXPECT_EQ(chunks.padded(3), 3);
  EXPECT_EQ(chunks.padded(4), 4);
  EXPECT_EQ(chunks.padded(5), 12);
  EXPECT_EQ(chunks.padded(12), 12);
  EXPECT_EQ(chunks.padded(13), 24);
  EXPECT_EQ(resolved.model.stacks[0].positions, 72) << "77 positions of the grid end within a chunk";
}

TEST(Chunks, HaveSeedZeroWithoutOne) {
  Synthetic s = tiny_reformer();
  s.config["hash_seed"] = nullptr;
  EXPECT_EQ(attention(Resolved(s), 1).chunks->hashes->seed, 0);
}

TEST(Chunks, RefuseSizesThatMakeNoSense) {
  const auto refused = [](const char* key, const nlohmann::json& value) {
    Synthetic s = tiny_reformer();
    s.config[key] = value;
    return refusal(s, Reason::ModelUnreadable);
  };
  EXPECT_THAT(refused("lsh_attn_chunk_length", 0), HasSubstr("length is 0"));
  EXPECT_THAT(refused("local_num_chunks_before", -1), HasSubstr("before is -1"));
  EXPECT_THAT(refused("local_num_chunks_after", 1 << 20), HasSubstr("expected up to 2^20 tokens in all"));
  EXPECT_THAT(refused("num_hashes", 65), HasSubstr("65 rounds of hashes"));
  EXPECT_THAT(refused("num_buckets", 7), HasSubstr("7 as the number of buckets"));
  EXPECT_THAT(refused("num_buckets", {4, 3}), HasSubstr("[4,3] as the number of buckets"));
  EXPECT_THAT(refused("num_buckets", {1 << 20, 1 << 20}), HasSubstr("as the number of buckets"));
  EXPECT_THAT(refused("num_buckets", nlohmann::json::array()), HasSubstr("an empty list of buckets"));
  EXPECT_THAT(refused("hash_seed", -1), HasSubstr("the seed -1"));
  EXPECT_THAT(refused("axial_pos_embds_dim", {20, 0}), HasSubstr("20 columns to the first part of positions"));
}

TEST(Hashes, CountBucketsByTheLength) {
  Hashes hashes{.rounds = 1, .buckets = {}, .seed = 0, .positions = 64};
  EXPECT_THAT(hashes.buckets_of(8, 4), ElementsAre(4));
  EXPECT_THAT(hashes.buckets_of(28, 4), ElementsAre(8)) << "14, whose power of 2 is at most twice a chunk";
  EXPECT_THAT(hashes.buckets_of(32, 4), ElementsAre(4, 4)) << "16 are too many for one factor";
  EXPECT_THAT(hashes.buckets_of(64, 4), ElementsAre(4, 8));
  hashes.positions = 1024;
  EXPECT_THAT(hashes.buckets_of(64, 4), ElementsAre(32)) << "at most twice the root of 256 chunks";
  hashes.buckets = {6};
  EXPECT_THAT(hashes.buckets_of(64, 4), ElementsAre(6));
}

TEST(ReversibleLayers, HandOnTwoStreams) {
  const Resolved resolved(tiny_reformer());
  const Stack& stack = resolved.model.stacks[0];
  EXPECT_TRUE(stack.is_reversible());
  EXPECT_EQ(stack.width(), 40);
  EXPECT_EQ(resolved.model.metadata.stacks[0].hidden, 40);
  EXPECT_THAT(resolved.param("encoder.output.norm.weight").shape, ElementsAre(40));
  EXPECT_THAT(resolved.param("heads.lm.logits.weight").shape, ElementsAre(101, 40));
  EXPECT_THAT(resolved.model.not_loaded, ElementsAre("lm_head.bias"));
}

TEST(AxialPositions, AreTwoTablesWhoseRowsRanksShare) {
  const Resolved resolved(tiny_reformer());
  const Param &row = resolved.param("encoder.positions.row"), &column = resolved.param("encoder.positions.column");
  EXPECT_EQ(resolved.model.stacks[0].input.position, PositionKind::Axial);
  EXPECT_THAT(row.shape, ElementsAre(7, 8));
  EXPECT_THAT(column.shape, ElementsAre(11, 12));
  for (const Param* table : {&row, &column}) {
    EXPECT_EQ(table->role, Role::PositionEmbedding);
    const std::vector<TensorSlice> slices = tensor_slices(*table, {2, 5});
    ASSERT_EQ(slices.size(), 1U);
    EXPECT_EQ(slices[0].rows, 3);
  }
}

TEST(AxialPositions, AreLearnedOnesWhereThereIsNoGrid) {
  Synthetic s = tiny_reformer();
  s.config["axial_pos_embds"] = false;
  s.tensors.erase("reformer.embeddings.position_embeddings.weights.0");
  s.tensors.erase("reformer.embeddings.position_embeddings.weights.1");
  s.add("reformer.embeddings.position_embeddings.embedding.weight", {100, 20});
  const Resolved resolved(s);
  EXPECT_EQ(resolved.model.stacks[0].input.position, PositionKind::Learned);
  EXPECT_EQ(resolved.model.stacks[0].positions, 96);
}

}  // namespace
}  // namespace pm::policy
