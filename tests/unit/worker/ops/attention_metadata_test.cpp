// SPDX-License-Identifier: Apache-2.0
// Tests the packed form of a step's sequences, and that it is made once.
#include "worker/ops/attention_metadata.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
