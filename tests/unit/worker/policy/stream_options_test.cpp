// SPDX-License-Identifier: Apache-2.0
// Streams that predict following tokens, and biases that queries say for distances, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string bert_with(const std::string& encoder, const std::string& more = "") {
  return "extends: bert\nstacks: {encoder: {" + encoder + "}}\n" + more;
}

/// A BERT of two layers and five heads, whose queries have biases for four buckets.
Synthetic with_buckets() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l)
    bert.linear("bert.encoder.layer." + std::to_string(l) + ".attention.self.distances", 20, 20);
  return bert;
}

Synthetic with_streams() {
  Synthetic bert = with_buckets();
  bert.add("bert.streams.weight", {3, 20});
  return bert;
}

std::string buckets(const std::string& more) {
  return bert_with("attn: {mask: causal, content_buckets: {from: self.distances" + more + "}}");
}

TEST(ContentBuckets, AreCutByHeadsOfEachBucket) {
  const Resolved resolved(with_buckets(), buckets(", num_buckets: 4, max_distance: 9"));
  const auto& made = resolved.model.stacks[0].layers[1].attention.content_buckets;
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->num_buckets, 4);
  EXPECT_EQ(made->max_distance, 9);
  EXPECT_FALSE(made->swapped_in_streams);
  const Param& weight = resolved.param("encoder.layers.1.attn.content_buckets.weight");
  const Param& bias = resolved.param("encoder.layers.1.attn.content_buckets.bias");
  EXPECT_EQ(weight.role, Role::BucketWeight);
  EXPECT_EQ(bias.role, Role::BucketBias);
  for (const Param* one : {&weight, &bias}) {
    EXPECT_EQ(one->units, 5);
    EXPECT_EQ(one->segments, 4);
    EXPECT_EQ(local_shape(*one, {1, 3})[0], 8) << "two heads of four buckets";
  }
}

TEST(ContentBuckets, RefuseSizesThatMakeNoSense) {
  const auto refused = [&](const std::string& sizes) {
    return refusal(with_buckets(), Reason::ModelUnreadable, buckets(sizes));
  };
  EXPECT_THAT(refused(", num_buckets: 1, max_distance: 9"), HasSubstr("1 buckets and 9 as the maximum distance"));
  EXPECT_THAT(refused(", num_buckets: 4, max_distance: 2"), HasSubstr("4 buckets and 2 as the maximum distance"));
  EXPECT_THAT(refused(", num_buckets: 8, max_distance: 9"), AllOf(HasSubstr("[20, 20]"), HasSubstr("[40, 20]")));
}

std::string streams(const std::string& of_input, const std::string& head = "") {
  return bert_with("input: {streams: {" + of_input +
                       "}}, attn: {mask: causal, content_buckets: {from: self.distances, num_buckets: 4, "
                       "max_distance: 9, swapped_in_streams: true}}",
                   head);
}

TEST(Streams, AreRowsOfATableAndReadPaddingWhereTheirBiasesAreSwapped) {
  const Resolved resolved(with_streams(), streams("from: /bert.streams, count: 3"));
  const Stack& stack = resolved.model.stacks[0];
  EXPECT_EQ(stack.input.stream_count(), 3);
  EXPECT_EQ(resolved.param("encoder.streams").role, Role::IndexTable);
  EXPECT_TRUE(reads_padding(stack));
  EXPECT_FALSE(reads_padding(Resolved(with_buckets(), buckets(", num_buckets: 4")).model.stacks[0]))
      << "without streams nothing is swapped";
}

TEST(Streams, NeedATableAndACount) {
  EXPECT_THAT(refusal(with_streams(), Reason::UnsupportedPolicy, streams("from: /bert.streams")),
              HasSubstr("\"count\""));
  EXPECT_THAT(refusal(with_streams(), Reason::ModelUnreadable, streams("from: /bert.streams, count: 0")),
              HasSubstr("count"));
  EXPECT_THAT(refusal(with_streams(), Reason::ModelUnreadable, streams("from: /bert.streams, count: 2")),
              AllOf(HasSubstr("[3, 20]"), HasSubstr("[2, 20]")));
}

TEST(Streams, AreScoredByAHeadWithTwoOutputs) {
  const std::string both = "heads: {mlm: {streams: true, output: [logits, logits_ngram]}}\n";
  const Resolved resolved(with_streams(), streams("from: /bert.streams, count: 3", both));
  EXPECT_TRUE(resolved.model.heads[0].streams);
  EXPECT_THAT(resolved.model.heads[0].outputs, ElementsAre("logits", "logits_ngram"));
  EXPECT_THAT(refusal(with_streams(), Reason::UnsupportedPolicy,
                      streams("from: /bert.streams, count: 3", "heads: {mlm: {streams: true}}\n")),
              HasSubstr("two outputs"));
  EXPECT_THAT(refusal(with_buckets(), Reason::UnsupportedPolicy, buckets(", num_buckets: 4") + both),
              HasSubstr("of a stack with streams"));
}

}  // namespace
}  // namespace pm::policy
