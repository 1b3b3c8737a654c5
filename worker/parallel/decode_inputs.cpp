// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/decode_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "worker/ops/attention_metadata.h"
#include "worker/ops/staging.h"

namespace pm::parallel {

namespace {

constexpr int64_t vectors = 3;  // tokens, positions, slots
constexpr int64_t word = sizeof(int32_t), long_word = sizeof(int64_t);
constexpr auto sampling_bytes = static_cast<int64_t>(sizeof(ops::RowSampling)),
               edit_bytes = static_cast<int64_t>(sizeof(ops::RowEdit));
static_assert(sampling_bytes % long_word == 0);

/// New entries of the tables that a step sends one by one. Each sequence has a new block every 16 steps.
constexpr int64_t updates_per_row = 4;

}  // namespace

DecodeInputs::DecodeInputs(at::Device device, int64_t rows, int64_t max_sequence_length, bool has_sampler)
    : device_(device),
      batch_(rows),
      table_stride_(blocks_for(max_sequence_length)),
      updates_(updates_per_row * rows),
      places_at_(vectors * rows * long_word),
      sampling_at_(places_at_ + updates_ * long_word),
      values_at_(sampling_at_ + (has_sampler ? rows * sampling_bytes : 0)),
      edit_count_at_(values_at_ + updates_ * word),
      metadata_at_(edit_count_at_ + word),
      tables_at_(metadata_at_ + ops::MetadataRows * rows * word),
      end_(tables_at_ + (rows * table_stride_ + 1) * word),
      host_(ops::pinned(end_).zero_()),
      device_bytes_(at::zeros({end_}, at::TensorOptions(at::kByte).device(device))) {
  const auto view = [&](int64_t from, int64_t to, at::ScalarType type) {
    return device_bytes_.narrow(0, from, to - from).view(type);
  };
  layers::Batch& batch = rows_.batch;
  at::Tensor* tensors[vectors] = {&batch.tokens, &batch.positions, &batch.slots};
  for (int64_t i = 0; i < vectors; ++i) *tensors[i] = view(i * rows * long_word, (i + 1) * rows * long_word, at::kLong);
  for (int64_t i = 0; i < rows; ++i)
    batch.sequences.spans.push_back({.first = i, .tokens = 1, .context = 0, .keys = 1, .key_row = 0, .blocks = {}});
  batch.sequences.metadata = {.buffer = view(metadata_at_, end_ - word, at::kInt),
                              .table_stride = table_stride_,
                              .single = rows,
                              .max_tokens = 1,
                              .max_keys = max_sequence_length};
  places_ = view(places_at_, sampling_at_, at::kLong);
  values_ = view(values_at_, edit_count_at_, at::kInt);
  tables_ = view(tables_at_, end_, at::kInt);
  if (!has_sampler) return;
  edits_host_ = ops::pinned(max_edits * edit_bytes);
  edits_ = at::empty({max_edits * edit_bytes}, device_bytes_.options());
  sampling_ = {.sampling = view(sampling_at_, values_at_, at::kByte),
               .edits = edits_,
               .edit_count = view(edit_count_at_, metadata_at_, at::kInt)};
}

bool DecodeInputs::fits(const ops::SampleBatch& samples) const {
  const auto count = static_cast<int64_t>(samples.rows.size());
  if (samples.is_greedy()) return count <= batch_;
  if (!edits_.defined() || count > batch_ || static_cast<int64_t>(samples.edits.size()) > max_edits) return false;
  for (int64_t i = 0; i < count; ++i)
    if (samples.rows[static_cast<size_t>(i)] != i) return false;
  return true;
}

void DecodeInputs::fill(const models::StepRows& rows, const ops::SampleBatch* samples) {
  const layers::Batch& batch = rows.batch;
  copied_.synchronize();  // a rank that reads no results may run ahead of its device
  const int64_t padding[vectors] = {0, 0, -1};
  const at::Tensor* sources[vectors] = {&batch.tokens, &batch.positions, &batch.slots};
  for (int64_t i = 0; i < vectors; ++i) {
    const at::Tensor values = sources[i]->contiguous();
    auto* to = host<int64_t>(i * batch_ * long_word);
    std::fill(std::copy_n(values.const_data_ptr<int64_t>(), values.numel(), to), to + batch_, padding[i]);
  }
  if (edits_.defined()) {
    auto* to = host<ops::RowSampling>(sampling_at_);
    std::fill(samples ? std::copy(samples->sampling.begin(), samples->sampling.end(), to) : to, to + batch_,
              ops::RowSampling{});
    const auto count = samples ? static_cast<int32_t>(samples->edits.size()) : 0;
    *host<int32_t>(edit_count_at_) = count;
    if (count > 0) {
      std::memcpy(edits_host_.mutable_data_ptr<uint8_t>(), samples->edits.data(),
                  sizeof(ops::RowEdit) * samples->edits.size());
      edits_.narrow(0, 0, count * edit_bytes)
          .copy_(edits_host_.narrow(0, 0, count * edit_bytes), /*non_blocking=*/true);
    }
  }
  ops::pack_metadata_rows(batch.sequences.spans, batch_, host<int32_t>(metadata_at_));
  bytes_sent_ = fill_tables(batch.sequences.spans);
  device_bytes_.narrow(0, 0, bytes_sent_).copy_(host_.narrow(0, 0, bytes_sent_), /*non_blocking=*/true);
  copied_.record(device_);
}

/// Brings the tables in host memory up to date. Returns the bytes of host_ that the device has to be sent: up to the
/// tables, or up to their last new entry where these are too many to be sent one by one.
int64_t DecodeInputs::fill_tables(std::span<const ops::SequenceSpan> sequences) {
  auto *places = host<int64_t>(places_at_), *end_of_places = places + updates_, *place = places;
  auto *value = host<int32_t>(values_at_), *tables = host<int32_t>(tables_at_);
  int64_t last = 0;
  bool one_by_one = true;
  for (size_t row = 0; row < sequences.size(); ++row) {
    const auto blocks = sequences[row].blocks.first(
        sequences[row].blocks.empty() ? 0 : static_cast<size_t>(blocks_for(sequences[row].keys)));
    const int64_t first = static_cast<int64_t>(row) * table_stride_;
    if (std::equal(blocks.begin(), blocks.end(), tables + first)) continue;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      if (tables[at] == blocks[i]) continue;
      tables[at] = blocks[i];
      last = at;
      one_by_one = one_by_one && place != end_of_places;
      if (one_by_one) *place++ = at, *value++ = blocks[i];
    }
  }
  std::fill(one_by_one ? place : places, end_of_places, batch_ * table_stride_);
  return one_by_one ? tables_at_ : tables_at_ + (last + 1) * word;
}

void DecodeInputs::update_tables() const { at::Tensor(tables_).index_copy_(0, places_, values_); }

}  // namespace pm::parallel
