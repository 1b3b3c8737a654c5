// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/decode_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "worker/ops/attention_metadata.h"
#include "worker/ops/device_memory.h"

#include "base/log.h"

namespace pm::parallel {

namespace {

constexpr int64_t integer = sizeof(int64_t);
constexpr int64_t vectors = 3;  // tokens, positions, slots

}  // namespace

DecodeGraphs::DecodeGraphs(at::Device device, int64_t max_sequence_length, bool enabled, comm::Communicator& group,
                           std::atomic<int64_t>& captured, std::atomic<int64_t>& replayed)
    : device_(device),
      capture_(enabled ? ops::graph_capturer(device.type()) : nullptr),
      max_sequence_length_(max_sequence_length),
      table_stride_(blocks_for(max_sequence_length)),
      group_(group),
      captured_(captured),
      replayed_(replayed) {}

int64_t DecodeGraphs::padded_batch_size(int64_t sequences) {
  int64_t bucket_size = 1;
  while (bucket_size < sequences && bucket_size < 8) bucket_size *= 2;
  return sequences <= bucket_size ? bucket_size : (sequences + 7) / 8 * 8;
}

int64_t DecodeGraphs::bucket_size(int64_t sequences) const {
  return capture_ && !disabled_ && sequences >= 1 && sequences <= max_captured_batch ? padded_batch_size(sequences) : 0;
}

void DecodeGraphs::make(Bucket& bucket, int64_t bucket_size) const {
  const int64_t bytes = vectors * bucket_size * integer +
                        ops::metadata_size(bucket_size, table_stride_) * static_cast<int64_t>(sizeof(int32_t));
  bucket.host = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(device_.is_cuda()));
  bucket.device = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
  const auto vector = [&](int64_t which) {
    return bucket.device.narrow(0, which * bucket_size * integer, bucket_size * integer).view(at::kLong);
  };
  layers::Batch& batch = bucket.rows.batch;
  batch.tokens = vector(0);
  batch.positions = vector(1);
  batch.slots = vector(2);
  for (int64_t i = 0; i < bucket_size; ++i)
    batch.sequences.spans.push_back({.first = i, .tokens = 1, .context = 0, .keys = 1, .key_row = 0, .blocks = {}});
  const int64_t before = vectors * bucket_size * integer;
  batch.sequences.metadata = {.buffer = bucket.device.narrow(0, before, bytes - before).view(at::kInt),
                              .table_stride = table_stride_,
                              .single = bucket_size,
                              .max_tokens = 1,
                              .max_keys = max_sequence_length_};
}

/// Fills the tensors of a bucket. Padding rows are token 0, and their keys and values are not stored.
void DecodeGraphs::fill(Bucket& bucket, int64_t bucket_size, const models::StepRows& rows) const {
  const layers::Batch& batch = rows.batch;
  bucket.copied.synchronize();  // a rank that reads no results may run ahead of its device
  auto* to = reinterpret_cast<int64_t*>(bucket.host.mutable_data_ptr<uint8_t>());
  int64_t padding[vectors] = {0, 0, -1};
  const at::Tensor* sources[vectors] = {&batch.tokens, &batch.positions, &batch.slots};
  for (int64_t which = 0; which < vectors; ++which) {
    const at::Tensor values = sources[which]->contiguous();
    int64_t* end = std::copy_n(values.const_data_ptr<int64_t>(), values.numel(), to + which * bucket_size);
    std::fill(end, to + (which + 1) * bucket_size, padding[which]);
  }
  ops::pack_metadata(batch.sequences.spans, bucket_size, table_stride_,
                     reinterpret_cast<int32_t*>(to + vectors * bucket_size));
  bucket.device.copy_(bucket.host, /*non_blocking=*/true);
  bucket.copied.record(device_);
}

/// Runs `body`; returns false when it ran out of device memory.
bool DecodeGraphs::run_unless_out_of_memory(const std::function<void()>& body) const {
  try {
    body();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

/// Returns true when all ranks succeeded. It uses CPU tensors, which do not go over the device communicator.
bool DecodeGraphs::all_ranks_agree(bool mine) {
  if (group_.size() == 1) return mine;
  at::Tensor cannot = at::full({1}, mine ? 0.f : 1.f, at::kFloat);
  group_.all_reduce(cannot, comm::Op::Max);
  return cannot.item<float>() == 0;
}

void DecodeGraphs::disable(int64_t bucket_size) {
  LOG(WARNING)
      << device_ << ": a rank of the group cannot capture the CUDA graph of " << bucket_size
      << " sequences, for lack of memory or because graphs are disabled there; decode steps are launched kernel by "
         "kernel from now on";
  disabled_ = true;
  ops::current_stream(device_).synchronize();  // work in progress uses the graphs that are freed here
  buckets_.clear();
  captured_ = 0;
  ops::release_unused(device_);
}

at::Tensor DecodeGraphs::run(models::StepRows& rows, int64_t bucket_size,
                             const std::function<at::Tensor(models::StepRows&)>& step) {
  const auto& sequences = rows.batch.sequences.spans;
  const auto count = static_cast<int64_t>(sequences.size());
  const bool fits = count >= 1 && count <= bucket_size && bucket_size <= max_captured_batch && !rows.source &&
                    rows.cross.sequences.spans.empty() &&
                    std::all_of(sequences.begin(), sequences.end(), [&](const ops::SequenceSpan& one) {
                      return one.tokens == 1 && one.keys <= max_sequence_length_;
                    });
  if (!fits)
    throw std::logic_error("a step of " + std::to_string(count) + " sequences does not fit the CUDA graph for " +
                           std::to_string(bucket_size));
  const auto run_eager = [&] {
    rows = std::move(rows).on(device_);
    return step(rows);
  };
  if (disabled_) return run_eager();
  Bucket& bucket = buckets_[bucket_size];
  if (!bucket.graph) {
    if (!all_ranks_agree(capture_ && run_unless_out_of_memory([&] { make(bucket, bucket_size); }))) {
      disable(bucket_size);
      return run_eager();
    }
    fill(bucket, bucket_size, rows);
    const at::Tensor eager = step(bucket.rows);
    const bool mine =
        run_unless_out_of_memory([&] { bucket.graph = capture_(device_, [&] { bucket.hidden = step(bucket.rows); }); });
    if (!all_ranks_agree(mine)) {
      disable(bucket_size);
      return eager.narrow(0, 0, count);
    }
    ++captured_;
    LOG(INFO) << device_ << " captured the CUDA graph of a decode step for up to " << bucket_size << " sequences";
  } else {
    fill(bucket, bucket_size, rows);
  }
  bucket.graph->replay();
  group_.graph_replayed("a captured step");
  ++replayed_;
  return bucket.hidden.narrow(0, 0, count);
}

}  // namespace pm::parallel
