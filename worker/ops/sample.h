// SPDX-License-Identifier: Apache-2.0
// Token sampling on the device that holds the logits: only the sampled ids are copied to the host.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/sample_batch.h"

namespace pm::ops {

/// One sample for each row, with parameters in the memory of the device: a call that is captured in a CUDA graph reads
/// those of each replay.
struct SamplingBuffers {
  at::Tensor sampling;    ///< uint8 [rows x sizeof(RowSampling)]
  at::Tensor edits;       ///< uint8 [capacity x sizeof(RowEdit)]
  at::Tensor edit_count;  ///< int32 [1]: that many edits apply, from the first on
};

/// Returns whether devices of this type have a sampler.
bool has_sampler(c10::DeviceType);
/// Samples from scores [rows, vocabulary] fp32, which are overwritten, and returns ids [samples] int64 on the same
/// device. Throws std::logic_error where has_sampler() is false.
at::Tensor sample(at::Tensor scores, const SampleBatch&);
/// Samples from every row as above. May be captured: the host neither copies nor waits.
at::Tensor sample(at::Tensor scores, const SamplingBuffers&);

struct BestScores {
  at::Tensor values;  ///< fp32 [rows]
  at::Tensor ids;     ///< int64 [rows]: the smallest id that has the value
};
/// Returns the best of the scores [rows, vocabulary] of each row, on the same device. May be captured.
BestScores best_scores(const at::Tensor& scores);

}  // namespace pm::ops
