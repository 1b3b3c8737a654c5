// SPDX-License-Identifier: Apache-2.0
// CUDA graphs of decode steps on the fake device (worker/parallel/decode_graphs.h): all batch sizes, captured, dropped
// and captured again, and what happens where a rank cannot capture.
#include "worker/parallel/decode_graphs.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <thread>
#include <utility>

#include "tests/gpu/fake_device/capture_faults.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/graphs.h"
#include "tests/gpu/fake_device/memory.h"
#include "worker/base/error.h"
#include "worker/ops/device_memory.h"

namespace pm::parallel {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const at::Device device(fake_device::device_type, 0);
constexpr int64_t vocabulary = 100, longest = 64;

/// A step whose hidden states are known: rows of a table times a matrix, and some small operations.
struct Decoding : testing::Test {
  Decoding() { fake_device::register_graphs(); }

  at::Tensor expected(const at::Tensor& tokens) const { return at::mm(at::index_select(table, 0, tokens), matrix) + 6; }
  at::Tensor step(models::StepRows& rows) const {
    at::Tensor hidden = at::mm(at::index_select(there_table, 0, rows.batch.tokens), there_matrix);
    for (int i = 0; i < 6; ++i) hidden = hidden + 1;
    return hidden;
  }
  /// Returns the rows of a decode step of so many sequences.
  static models::StepRows rows_of(int64_t sequences, int64_t seed) {
    models::StepRows rows;
    rows.batch.tokens = at::arange(seed, seed + sequences, at::kLong).remainder(vocabulary);
    rows.batch.positions = rows.batch.slots = at::zeros({sequences}, at::kLong);
    for (int64_t i = 0; i < sequences; ++i)
      rows.batch.sequences.spans.push_back(
          {.first = i, .tokens = 1, .context = 0, .keys = 1, .key_row = 0, .blocks = {}});
    return rows;
  }
  using Step = std::function<at::Tensor(models::StepRows&)>;
  /// Runs a step and compares its result.
  void run(DecodeGraphs& graphs, int64_t sequences, int64_t bucket, int64_t seed, const Step& with) const {
    models::StepRows rows = rows_of(sequences, seed);
    const at::Tensor tokens = rows.batch.tokens;
    EXPECT_TRUE(at::equal(graphs.run(rows, bucket, {.hidden = with, .greedy = {}, .sample = {}}).hidden.cpu(),
                          expected(tokens)))
        << sequences << " of " << bucket;
  }
  void run(DecodeGraphs& graphs, int64_t sequences, int64_t bucket, int64_t seed) const {
    run(graphs, sequences, bucket, seed, [this](models::StepRows& rows) { return step(rows); });
  }
  /// Checks that graphs which have failed left nothing in the allocators.
  static void expect_clean() {
    EXPECT_EQ(fake_device::Memory::instance().captures_underway(0), 0u);
    EXPECT_EQ(fake_device::Pinned::instance().captures_underway(), 0u);
    EXPECT_EQ(fake_device::Memory::instance().graph_pools(0), 0u);
    EXPECT_EQ(fake_device::capture, nullptr);
  }

  const c10::InferenceMode inference;
  const at::Tensor table = at::arange(vocabulary * 4, at::kFloat).view({vocabulary, 4}),
                   matrix = at::arange(16, at::kFloat).view({4, 4}), there_table = table.to(device),
                   there_matrix = matrix.to(device);
  const std::vector<std::shared_ptr<comm::Communicator>> group = comm::in_process(2, 20s);
  const std::shared_ptr<comm::Communicator> alone = comm::in_process(1, 20s)[0];
  GraphStatus status;
};

TEST_F(Decoding, AllSizesAreCapturedDroppedAndCapturedAgain) {
  for (int time = 0; time < 3; ++time) {
    status.captured = status.replayed = 0;
    {
      DecodeGraphs graphs(device, longest, true, *alone, status);
      int64_t sizes = 0;
      for (int64_t sequences = 64, last = 0; sequences > 0; --sequences) {
        const int64_t bucket = graphs.bucket_size(sequences);
        if (std::exchange(last, bucket) == bucket) continue;
        run(graphs, sequences, bucket, sequences);
        run(graphs, std::max<int64_t>(1, sequences - 1), bucket, 3 * sequences);
        ++sizes;
      }
      EXPECT_EQ(sizes, 11);
      EXPECT_EQ(status.counts().captured, sizes);
      EXPECT_EQ(status.counts().replayed, 2 * sizes);
    }
    ops::release_unused(device);
    expect_clean();
  }
  EXPECT_THAT(status.counts().failure, IsEmpty());
}

TEST_F(Decoding, AFailedCaptureLeavesLaunchesAndACleanAllocator) {
  for (const auto& [kind, words] : {std::pair("memory", "fake out of memory for a graph"),
                                    std::pair("operation", "operation not permitted when stream is capturing"),
                                    std::pair("instantiate", "the graph cannot be instantiated")}) {
    const fake_device::CaptureFault fault(0, kind);
    GraphStatus own;
    DecodeGraphs graphs(device, longest, true, *alone, own);
    run(graphs, 3, graphs.bucket_size(3), 1);
    expect_clean();
    EXPECT_THAT(own.counts().failure, StartsWith("fake:0: no CUDA graph of a decode step for up to 4 sequences: "));
    EXPECT_THAT(own.counts().failure, HasSubstr(words));
    EXPECT_EQ(own.counts().captured + own.counts().replayed, 0);
    EXPECT_EQ(graphs.bucket_size(3), 0);
    run(graphs, 3, 4, 50);  // a step that was on its way
  }
}

TEST_F(Decoding, ACaptureThatFailsAfterOthersDropsThem) {
  DecodeGraphs graphs(device, longest, true, *alone, status);
  run(graphs, 8, 8, 1);
  EXPECT_EQ(status.counts().captured, 1);
  const fake_device::CaptureFault fault(0, "operation");
  run(graphs, 2, 2, 7);
  expect_clean();
  EXPECT_EQ(status.counts().captured, 0);
  run(graphs, 8, 8, 9);
}

TEST_F(Decoding, ADeadDeviceEndsTheStep) {
  DecodeGraphs graphs(device, longest, true, *alone, status);
  models::StepRows rows = rows_of(2, 1);
  const Step breaking = [&](models::StepRows& fixed) {
    if (fake_device::capture) {
      fake_device::break_device(true);
      TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered");
    }
    return step(fixed);
  };
  EXPECT_THROW(graphs.run(rows, 2, {.hidden = breaking, .greedy = {}, .sample = {}}), c10::Error);
  fake_device::break_device(false);
}

TEST_F(Decoding, ErrorsThatAreNotOfTheDeviceAreThrownOn) {
  const Step lost = [&](models::StepRows& fixed) {
    if (fake_device::capture) throw Error(Reason::RankLost, "rank 1 died");
    return step(fixed);
  };
  {
    DecodeGraphs graphs(device, longest, true, *alone, status);
    models::StepRows rows = rows_of(2, 1);
    EXPECT_THROW(graphs.run(rows, 2, {.hidden = lost, .greedy = {}, .sample = {}}), Error);
  }
  ops::release_unused(device);
  expect_clean();
  EXPECT_THAT(status.counts().failure, IsEmpty());
}

TEST_F(Decoding, ARankThatCannotCaptureMakesAllLaunch) {
  GraphStatus statuses[2];
  std::thread ranks[2];
  for (size_t r = 0; r < 2; ++r) {
    ranks[r] = std::thread([&, r] {
      const c10::InferenceMode inference_mode;
      DecodeGraphs graphs(device, longest, true, *group[r], statuses[r]);
      for (int64_t sequences : {8, 3}) {
        run(graphs, sequences, DecodeGraphs::padded_batch_size(sequences), sequences, [&](models::StepRows& fixed) {
          TORCH_CHECK(!fake_device::capture || r == 0, "CUDA error: out of resources\nwith a second line");
          return step(fixed);
        });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(statuses[0].counts().failure, HasSubstr("another rank of the group cannot capture it"));
  EXPECT_THAT(statuses[1].counts().failure, HasSubstr("8 sequences: CUDA error: out of resources; decode steps are"));
  expect_clean();
}

/// A sampler whose tokens show what it was given: the row's seed, position and the first edit of all.
at::Tensor told(const at::Tensor& hidden, const ops::SamplingBuffers& given) {
  const at::Tensor words = given.sampling.view(at::kLong).view({hidden.size(0), -1});
  const at::Tensor edit = given.edits.view(at::kInt).narrow(0, 0, 2).sum() * (given.edit_count > 0);
  return words.select(1, offsetof(ops::RowSampling, seed) / 8) * 1000 +
         words.select(1, offsetof(ops::RowSampling, position) / 8) + edit * 1'000'000;
}

TEST_F(Decoding, GraphsChooseTheTokensByTheParametersOfEachStep) {
  DecodeGraphs graphs(device, longest, true, *alone, status);
  const DecodeStep with{.hidden = [this](models::StepRows& rows) { return step(rows); },
                        .greedy = [](const at::Tensor& hidden) { return std::get<1>(hidden.max(1)); },
                        .sample = &told};
  for (const int64_t sequences : {3, 4, 2, 3}) {
    models::StepRows rows = rows_of(sequences, sequences);
    ops::SampleBatch greedy, sampled;
    at::Tensor expected_tokens = at::empty({sequences}, at::kLong);
    for (int64_t row = 0; row < sequences; ++row) {
      greedy.rows.push_back(row), sampled.rows.push_back(row);
      greedy.sampling.emplace_back();
      sampled.sampling.push_back(
          {.seed = static_cast<uint64_t>(row + 7), .position = static_cast<uint64_t>(sequences), .sample = true});
      expected_tokens[row] = (row + 7) * 1000 + sequences;
    }
    const int64_t before = fake_device::blocking_copies();
    const auto choose = [&](const ops::SampleBatch& samples) { return graphs.run(rows, 4, with, &samples); };
    const at::Tensor hidden = expected(rows.batch.tokens);
    EXPECT_TRUE(at::equal(choose(greedy).tokens, std::get<1>(hidden.max(1))));
    EXPECT_TRUE(at::equal(choose(sampled).tokens, expected_tokens)) << choose(sampled).tokens << expected_tokens;
    sampled.edits = {{.row = 1, .edit = {.id = 4}}};
    EXPECT_TRUE(at::equal(choose(sampled).tokens, expected_tokens + 5'000'000)) << "an edit of row 1 and id 4";
    sampled.edits.clear();
    EXPECT_TRUE(at::equal(choose(sampled).tokens, expected_tokens)) << "no edit is left of the step before";
    EXPECT_EQ(fake_device::blocking_copies(), before) << "the host waits for the tokens only";
  }
  EXPECT_EQ(status.counts().captured, 1) << "graphs that choose tokens are not counted apart";
}

TEST_F(Decoding, WhatGraphsCannotChooseIsLeftToTheCaller) {
  DecodeGraphs graphs(device, longest, true, *alone, status);
  DecodeStep with{.hidden = [this](models::StepRows& rows) { return step(rows); },
                  .greedy = [](const at::Tensor&) { return at::Tensor(); },  // as on a rank that learns no tokens
                  .sample = &told};
  models::StepRows rows = rows_of(1, 3);
  ops::SampleBatch greedy{.sampling = {{}}, .rows = {0}, .edits = {}},
      edited{.sampling = {{}}, .rows = {0}, .edits = {}};
  edited.edits.resize(DecodeInputs::max_edits + 1);
  EXPECT_FALSE(graphs.run(rows, 1, with).has_tokens);
  const DecodeResult too_many = graphs.run(rows, 1, with, &edited);
  EXPECT_FALSE(too_many.has_tokens);
  EXPECT_TRUE(at::equal(too_many.hidden.cpu(), expected(rows.batch.tokens)));
  with.sample = {};
  const DecodeResult elsewhere = graphs.run(rows = rows_of(2, 5), 2, with, &greedy);
  EXPECT_TRUE(elsewhere.has_tokens);
  EXPECT_FALSE(elsewhere.tokens.defined());
  EXPECT_FALSE(graphs.run(rows, 2, with, &edited).has_tokens) << "the device has no sampler";
}

TEST_F(Decoding, AThreadReplaysWhatAnotherHasCaptured) {
  DecodeGraphs graphs(device, longest, true, *alone, status);
  run(graphs, 4, 4, 1);
  std::thread([&] {
    const c10::InferenceMode inference_mode;
    run(graphs, 4, 4, 20);
    run(graphs, 8, 8, 30);  // captured here
  }).join();
  run(graphs, 8, 8, 40);
  EXPECT_EQ(status.counts().captured, 2);
  EXPECT_EQ(status.counts().replayed, 4);
}

}  // namespace
}  // namespace pm::parallel
