// SPDX-License-Identifier: Apache-2.0
// The inputs of captured decode steps: tensors at fixed addresses, and what of them changes from step to step.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "worker/models/model.h"
#include "worker/ops/sample.h"
#include "worker/ops/stream.h"

namespace pm::parallel {

/// The inputs of one bucket of batch sizes. The block tables stay on the device: a step sends the entries that are new,
/// and a captured operation writes them. Only where more than `updates` entries are new, as for sequences that begin or
/// move up, does it send the tables themselves.
class DecodeInputs {
 public:
  /// Most edits of a step's scores that fit, over all rows.
  static constexpr int64_t max_edits = int64_t{1} << 14;

  /// `rows` is the batch size with padding, `max_sequence_length` in tokens. `has_sampler`: with room for sampling.
  DecodeInputs(at::Device, int64_t rows, int64_t max_sequence_length, bool has_sampler);
  /// Returns whether there is room for these samples, one for each row in order.
  bool fits(const ops::SampleBatch&) const;
  /// Queues the copies of a step's inputs to the device. Padding rows are token 0, whose keys and values are not
  /// stored, and have no keys. `samples` may be nullptr.
  void fill(const models::StepRows&, const ops::SampleBatch* samples);
  /// Queues the operation that writes new entries to the block tables; the first one of the step.
  void update_tables() const;

  models::StepRows& rows() { return rows_; }
  const ops::SamplingBuffers& sampling() const { return sampling_; }
  int64_t bytes_sent() const { return bytes_sent_; }  ///< by the last fill()

 private:
  int64_t fill_tables(std::span<const ops::SequenceSpan>);
  template <typename T>
  T* host(int64_t at) const {
    return reinterpret_cast<T*>(host_.mutable_data_ptr<uint8_t>() + at);
  }
  const at::Device device_;
  const int64_t batch_, table_stride_, updates_;  ///< entries of the tables that a step may send one by one
  /// Places in host_ and device_, in bytes: tokens, positions and slots [batch] int64 at 0, places of updates [updates]
  /// int64, sampling [batch], values of updates [updates] int32, number of edits int32, attention metadata
  /// (ops/attention_metadata.h) with the tables at its end, and one entry of the tables for updates that are not used.
  const int64_t places_at_, sampling_at_, values_at_, edit_count_at_, metadata_at_, tables_at_, end_;
  at::Tensor host_, device_bytes_;       ///< host_ is pinned
  at::Tensor edits_host_, edits_;        ///< bytes
  at::Tensor places_, values_, tables_;  ///< views of device_bytes_
  models::StepRows rows_;                ///< tensors that view device_bytes_
  ops::SamplingBuffers sampling_;
  ops::StreamEvent copied_;  ///< after it host memory may be filled again
  int64_t bytes_sent_ = 0;
};

}  // namespace pm::parallel
