// SPDX-License-Identifier: Apache-2.0
// The inputs of captured decode steps on the fake device (worker/parallel/decode_inputs.h): the block tables on the
// device are those of the sequences after every step, and few bytes are sent.
#include "worker/parallel/decode_inputs.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/gpu/fake_device/memory.h"
#include "worker/ops/attention_metadata.h"

namespace pm::parallel {
namespace {

const at::Device device(fake_device::device_type, 0);
constexpr int64_t batch_size = 8, longest = 4096, stride = longest / block_tokens;

struct Sequence {
  int64_t keys = 0;
  std::vector<int32_t> blocks;
};

/// Sequences that decode, in the rows of a batch.
struct Batch {
  std::vector<Sequence> sequences;
  int32_t next_block = 1;

  void begin(int64_t keys) {
    sequences.push_back({keys - 1, {}});
    grow(sequences.back());
  }
  void grow(Sequence& one) {
    ++one.keys;
    while (static_cast<int64_t>(one.blocks.size()) < blocks_for(one.keys)) one.blocks.push_back(next_block++);
  }
  models::StepRows rows() const {
    models::StepRows rows;
    layers::Batch& batch = rows.batch;
    const auto count = static_cast<int64_t>(sequences.size());
    batch.tokens = at::arange(count) + next_block;
    batch.positions = at::zeros({count}, at::kLong);
    batch.slots = at::zeros({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      const Sequence& one = sequences[static_cast<size_t>(i)];
      batch.positions[i] = one.keys - 1;
      batch.slots[i] = one.blocks.back() * block_tokens + (one.keys - 1) % block_tokens;
      batch.sequences.spans.push_back(
          {.first = i, .tokens = 1, .context = one.keys - 1, .keys = one.keys, .key_row = 0, .blocks = one.blocks});
    }
    return rows;
  }
};

/// Fills the inputs and compares what a captured step reads with the batch.
void step(DecodeInputs& inputs, const Batch& batch) {
  const models::StepRows rows = batch.rows();
  inputs.fill(rows, nullptr);
  inputs.update_tables();
  const layers::Batch& there = inputs.rows().batch;
  const auto count = static_cast<int64_t>(batch.sequences.size());
  const auto padded = [&](const at::Tensor& values, int64_t padding) {
    return at::cat({values, at::full({batch_size - count}, padding, at::kLong)});
  };
  EXPECT_TRUE(at::equal(there.tokens.cpu(), padded(rows.batch.tokens, 0)));
  EXPECT_TRUE(at::equal(there.positions.cpu(), padded(rows.batch.positions, 0)));
  EXPECT_TRUE(at::equal(there.slots.cpu(), padded(rows.batch.slots, -1)));
  const at::Tensor metadata = there.sequences.metadata.buffer.cpu();
  at::Tensor expected = at::empty({ops::metadata_size(batch_size, stride)}, at::kInt);
  ops::pack_metadata(rows.batch.sequences.spans, batch_size, stride, expected.mutable_data_ptr<int32_t>());
  constexpr int64_t before_tables = ops::MetadataRows * batch_size;
  EXPECT_TRUE(at::equal(metadata.narrow(0, 0, before_tables), expected.narrow(0, 0, before_tables)));
  for (int64_t i = 0; i < count; ++i) {  // entries behind those of a sequence are not read
    const auto of = [&](const at::Tensor& all) {
      return all.narrow(0, before_tables + i * stride, blocks_for(batch.sequences[static_cast<size_t>(i)].keys));
    };
    EXPECT_TRUE(at::equal(of(metadata), of(expected))) << "row " << i;
  }
}

struct Inputs : testing::Test {
  const c10::InferenceMode inference;
  DecodeInputs inputs{device, batch_size, longest, false};
  Batch batch;
};

TEST_F(Inputs, TablesStayOnTheDeviceAndNewBlocksAreSentAlone) {
  for (const int64_t keys : {2000, 30, 4000, 1}) batch.begin(keys);
  step(inputs, batch);
  EXPECT_GT(inputs.bytes_sent(), 3 * stride * 4) << "the tables of sequences that begin";
  for (int i = 0; i < 40; ++i) {
    for (Sequence& one : batch.sequences) batch.grow(one);
    step(inputs, batch);
    EXPECT_LT(inputs.bytes_sent(), 1024) << "of tables with " << batch_size * stride * 4 << " bytes";
  }
}

TEST_F(Inputs, SequencesComeAndGoAndMove) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
    if (batch.sequences.size() < batch_size && pick(4) == 0) batch.begin(static_cast<int64_t>(1 + pick(500)));
    if (batch.sequences.size() > 1 && pick(6) == 0)
      batch.sequences.erase(batch.sequences.begin() + static_cast<std::ptrdiff_t>(pick(batch.sequences.size())));
    if (batch.sequences.empty()) batch.begin(3);
    if (pick(9) == 0) std::swap(batch.sequences.front(), batch.sequences[pick(batch.sequences.size())]);
    for (Sequence& one : batch.sequences) batch.grow(one);
    step(inputs, batch);
  }
}

TEST_F(Inputs, ALaterStepOverwritesWhatAnotherSequenceLeft) {
  batch.begin(4000);
  step(inputs, batch);
  batch.sequences.clear();
  batch.begin(20);
  step(inputs, batch);
  for (int i = 0; i < 600; ++i) batch.grow(batch.sequences[0]);
  step(inputs, batch);
}

}  // namespace
}  // namespace pm::parallel
