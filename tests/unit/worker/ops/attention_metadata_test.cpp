// SPDX-License-Identifier: Apache-2.0
// Tests the packed form of a step's sequences, and that it is made once.
#include "worker/ops/attention_metadata.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "worker/ops/backend.h"

namespace pm::ops {
namespace {

using Row = std::vector<int32_t>;

const Row prefill_table{4, 9}, decode_table{7};

/// A prompt of 20 tokens, and a sequence that decodes its 13th token.
std::vector<SequenceSpan> prefill_and_decode() {
  return {{.first = 0, .tokens = 20, .context = 0, .keys = 20, .key_row = 0, .blocks = prefill_table},
          {.first = 20, .tokens = 1, .context = 12, .keys = 13, .key_row = 20, .blocks = decode_table}};
}

TEST(AttentionMetadata, DecodeSequencesComeFirstAndPaddingHasNoKeys) {
  const int64_t batch_size = 3, table_stride = 2;
  Row packed(static_cast<size_t>(metadata_size(batch_size, table_stride)), -1);
  pack_metadata(prefill_and_decode(), batch_size, table_stride, packed.data());
  const auto row = [&](MetadataRow which) {
    const auto begin = packed.begin() + which * batch_size;
    return Row(begin, begin + batch_size);
  };
  EXPECT_EQ(row(MetadataFirst), (Row{20, 0, 2}));
  EXPECT_EQ(row(MetadataTokens), (Row{1, 20, 1}));
  EXPECT_EQ(row(MetadataContexts), (Row{12, 0, 0}));
  EXPECT_EQ(row(MetadataKeys), (Row{13, 20, 0}));
  EXPECT_EQ(row(MetadataKeyRows), (Row{20, 0, 0}));
  EXPECT_EQ(Row(packed.begin() + MetadataRows * batch_size, packed.end()), (Row{7, 0, 4, 9, 0, 0}));
}

/// The first row, the rows and the keys of each batch.
std::vector<std::array<int64_t, 3>> extents(const std::vector<VarlenBatch>& batches) {
  std::vector<std::array<int64_t, 3>> all;
  for (const VarlenBatch& batch : batches) all.push_back({batch.first, batch.tokens, batch.keys});
  return all;
}
using Extents = std::vector<std::array<int64_t, 3>>;

TEST(VarlenBatches, HoldAdjacentPromptsAndLeaveOutDecodeSequences) {
  const auto of = [](int64_t first, int64_t tokens, int64_t context) {
    return SequenceSpan{.first = first,
                        .tokens = tokens,
                        .context = context,
                        .keys = context + tokens,
                        .key_row = 0,
                        .blocks = prefill_table};
  };
  Row starts;
  const std::vector<SequenceSpan> sequences{of(0, 1, 30), of(1, 20, 0), of(21, 5, 7), of(26, 1, 3), of(27, 2, 40)};
  const std::vector<VarlenBatch> batches = varlen_batches(sequences, 100, starts);
  EXPECT_EQ(extents(batches), (Extents{{1, 25, 32}, {27, 2, 42}}));
  EXPECT_EQ(starts, (Row{0, 20, 25, 0, 20, 32, 0, 2, 0, 42}));
  ASSERT_EQ(batches.size(), 2);
  EXPECT_EQ(batches[0].query_starts, 100);
  EXPECT_EQ(batches[0].key_starts, 103);
  EXPECT_EQ(batches[1].key_starts, 108);
  EXPECT_EQ(batches[0].sequence, 2) << "two sequences of one query come first in the buffer";
  EXPECT_EQ(batches[1].sequence, 4);
  EXPECT_EQ(batches[0].sequences, 2);
  EXPECT_EQ(batches[0].max_tokens, 20);
  EXPECT_EQ(batches[0].max_keys, 20);
}

TEST(VarlenBatches, GatherNoMoreKeysThanTheLongestSequenceOrTheTokensOfTheStep) {
  const Row table(100);
  const auto of = [&](int64_t first, int64_t tokens, int64_t keys) {
    return SequenceSpan{
        .first = first, .tokens = tokens, .context = keys - tokens, .keys = keys, .key_row = 0, .blocks = table};
  };
  Row starts;
  EXPECT_EQ(extents(varlen_batches(std::vector{of(0, 4, 300), of(4, 4, 200), of(8, 4, 100), of(12, 4, 1)}, 0, starts)),
            (Extents{{0, 4, 300}, {4, 8, 300}, {12, 4, 1}}));
  EXPECT_EQ(extents(varlen_batches(std::vector{of(0, 40, 40), of(40, 30, 30), of(70, 50, 60)}, 0, starts)),
            (Extents{{0, 70, 70}, {70, 50, 60}}));
}

TEST(VarlenBatches, WithoutACacheTakeEverySequenceWhoseKeysAreAdjacentToo) {
  const auto of = [](int64_t first, int64_t tokens, int64_t key_row, int64_t keys) {
    return SequenceSpan{.first = first, .tokens = tokens, .context = 0, .keys = keys, .key_row = key_row, .blocks = {}};
  };
  Row starts;
  EXPECT_EQ(extents(varlen_batches(std::vector{of(0, 1, 0, 9), of(1, 8, 9, 2), of(9, 3, 9, 2)}, 0, starts)),
            (Extents{{0, 9, 11}, {9, 3, 2}}))
      << "two sequences read the same keys";
  EXPECT_EQ(starts, (Row{0, 1, 9, 0, 9, 11, 0, 3, 0, 2}));
}

TEST(AttentionMetadata, AttentionOnTheCpuReadsTheSpans) {
  StepSequences sequences{.spans = prefill_and_decode(), .metadata = {}};
  make_attention_metadata(sequences, at::kCPU);
  EXPECT_FALSE(sequences.metadata.buffer.defined());
}

/// Counts how often metadata is made.
class CountingBackend final : public Backend {
 public:
  AttentionMetadata attention_metadata(std::span<const SequenceSpan> sequences, at::Device) const override {
    ++made;
    return {.buffer = at::empty({1}, at::kInt), .max_keys = static_cast<int64_t>(sequences.size())};
  }
  mutable int made = 0;
};

TEST(AttentionMetadata, IsMadeOncePerStep) {
  static const CountingBackend backend;
  register_backend(at::kMeta, backend);
  StepSequences none, sequences{.spans = prefill_and_decode(), .metadata = {}};
  make_attention_metadata(none, at::kMeta);
  EXPECT_EQ(backend.made, 0) << "a step without sequences";
  make_attention_metadata(sequences, at::kMeta);
  make_attention_metadata(sequences, at::kMeta);
  EXPECT_EQ(backend.made, 1);
  EXPECT_EQ(sequences.metadata.max_keys, 2);
  StepSequences captured{.spans = prefill_and_decode(), .metadata = {.buffer = at::empty({2}, at::kInt)}};
  make_attention_metadata(captured, at::kMeta);
  EXPECT_EQ(backend.made, 1) << "a CUDA graph has its own";
}

}  // namespace
}  // namespace pm::ops
