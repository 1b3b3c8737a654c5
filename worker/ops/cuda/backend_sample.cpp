// SPDX-License-Identifier: Apache-2.0
// Sampling of the CUDA backend.
#include <ATen/ATen.h>

#include <cstring>

#include "worker/ops/cuda/backend.h"
#include "worker/ops/cuda/sample.h"
#include "worker/ops/staging.h"

namespace pm::ops::cuda {

at::Tensor CudaBackend::sample(at::Tensor given, const SamplingBuffers& buffers) const {
  const at::Tensor scores = given.contiguous();
  const int64_t rows = scores.size(0), vocabulary = scores.size(1);
  edit_scores({.scores = address<float>(scores),
               .score_stride = vocabulary,
               .edits = address<const RowEdit>(buffers.edits),
               .count = address<const int32_t>(buffers.edit_count),
               .capacity = buffers.edits.numel() / static_cast<int64_t>(sizeof(RowEdit))},
              stream(scores));
  at::Tensor ids = at::empty({rows}, scores.options().dtype(at::kInt));
  cuda::sample({.scores = address<float>(scores),
                .score_stride = vocabulary,
                .sampling = address<const RowSampling>(buffers.sampling),
                .ids = address<int32_t>(ids),
                .rows = rows,
                .vocabulary = vocabulary},
               stream(scores));
  return ids.to(at::kLong);
}

/// One host-to-device copy holds: sampling [samples], rows [samples] int64, edits [edits], their number int32.
at::Tensor CudaBackend::sample(at::Tensor given, const SampleBatch& batch) const {
  at::Tensor scores = given.contiguous();
  const auto samples = static_cast<int64_t>(batch.sampling.size());
  const auto bytes = [](const auto& values) {
    return static_cast<int64_t>(values.size() * sizeof(typename std::decay_t<decltype(values)>::value_type));
  };
  const int64_t rows_at = bytes(batch.sampling), edits_at = rows_at + bytes(batch.rows),
                count_at = edits_at + bytes(batch.edits);
  at::Tensor host = at::empty({count_at + static_cast<int64_t>(sizeof(int32_t))}, at::kByte);
  const auto put = [&](int64_t at, const void* from, int64_t length) {
    if (length > 0) std::memcpy(host.mutable_data_ptr<uint8_t>() + at, from, static_cast<size_t>(length));
  };
  const auto edits = static_cast<int32_t>(batch.edits.size());
  put(0, batch.sampling.data(), rows_at), put(rows_at, batch.rows.data(), bytes(batch.rows)),
      put(edits_at, batch.edits.data(), bytes(batch.edits)), put(count_at, &edits, sizeof edits);
  const at::Tensor packed = to_device(host, scores.device());
  const auto part = [&](int64_t from, int64_t to) { return packed.narrow(0, from, to - from); };
  bool own = samples == scores.size(0);  // each row is sampled once
  for (int64_t i = 0; own && i < samples; ++i) own = batch.rows[static_cast<size_t>(i)] == i;
  SamplingBuffers buffers{.sampling = part(0, rows_at),
                          .edits = part(edits_at, count_at),
                          .edit_count = part(count_at, packed.numel()).view(at::kInt)};
  if (!own) {  // rows are edited before they are copied
    edit_scores({.scores = address<float>(scores),
                 .score_stride = scores.size(1),
                 .edits = address<const RowEdit>(buffers.edits),
                 .count = address<const int32_t>(buffers.edit_count),
                 .capacity = edits},
                stream(scores));
    buffers.edits = part(edits_at, edits_at);
    scores = at::index_select(scores, 0, part(rows_at, edits_at).view(at::kLong));
  }
  return sample(scores, buffers);
}

ops::BestScores CudaBackend::best_scores(const at::Tensor& given) const {
  if (given.scalar_type() != at::kFloat || given.size(1) == 0) return Backend::best_scores(given);
  const at::Tensor scores = given.contiguous();
  const int64_t rows = scores.size(0), vocabulary = scores.size(1);
  ops::BestScores best{.values = at::empty({rows}, scores.options()),
                       .ids = at::empty({rows}, scores.options().dtype(at::kLong))};
  cuda::best_scores({.scores = address<float>(scores),
                     .score_stride = vocabulary,
                     .values = address<float>(best.values),
                     .ids = address<int64_t>(best.ids),
                     .rows = rows,
                     .vocabulary = vocabulary},
                    stream(scores));
  return best;
}

}  // namespace pm::ops::cuda
