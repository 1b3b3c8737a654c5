// SPDX-License-Identifier: Apache-2.0
// Token sampling on the device: the same tokens as the host's sampler for the same parameters, logits and random
// numbers.
#pragma once
#include "worker/ops/cuda/types.h"
#include "worker/ops/sample_batch.h"

namespace pm::ops::cuda {

/// Edits scores [rows, vocabulary] in place. The number of edits is read on the device, so that a captured launch may
/// get others.
struct EditScores {
  float* scores = nullptr;  ///< rows score_stride apart
  int64_t score_stride = 0;
  const RowEdit* edits = nullptr;  ///< [capacity], on the device
  const int32_t* count = nullptr;  ///< on the device: at most `capacity`
  int64_t capacity = 0;
};
void edit_scores(const EditScores&, Stream);

/// Samples ids[row] from scores [rows, vocabulary], to which penalties and bans have been applied. The scores are
/// divided by temperature. top_k keeps the k best and their ties. top_p drops the tail whose probabilities, summed from
/// the least likely up, stay within 1 - top_p. min_p keeps tokens at least min_p as likely as the best. Of the
/// remaining ids, in order of ids, the first whose cumulative probability exceeds Philox(seed, sequence, position) is
/// taken (Salmon et al. 2011).
///
/// Weights exp(score - best) are whole multiples of 2^-44 with a relative error below 2^-30, so that sums do not depend
/// on their order: the same row gives the same token in any batch. The host sums doubles; the two samplers differ only
/// where a threshold lies within about 2^-30 of a probability.
struct Sample {
  const float* scores = nullptr;  ///< rows score_stride apart
  int64_t score_stride = 0;
  const RowSampling* sampling = nullptr;  ///< [rows], on the device, so that a captured launch may get others
  int32_t* ids = nullptr;                 ///< [rows]
  int64_t rows = 0, vocabulary = 0;       ///< vocabulary <= max_sample_vocabulary
};
void sample(const Sample&, Stream);

/// Finds values[row], the best of scores [rows, vocabulary], and ids[row], the smallest id that has it. A score that is
/// no number is never the best; a row without another has -inf and id 0.
struct BestScores {
  const float* scores = nullptr;  ///< rows score_stride apart
  int64_t score_stride = 0;
  float* values = nullptr;           ///< [rows]
  int64_t* ids = nullptr;            ///< [rows]
  int64_t rows = 0, vocabulary = 0;  ///< vocabulary < 2^31
};
void best_scores(const BestScores&, Stream);

}  // namespace pm::ops::cuda
