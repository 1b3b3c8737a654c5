// The choice of a token on the device: the same tokens as the host's sampler chooses for the same parameters, scores and random numbers.
#pragma once
#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

/// How one row's token is chosen, under Hugging Face's names; read on the device, so that a captured launch may be given others.
struct RowSampling {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;                ///< 0: off
  uint64_t seed = 0, sequence = 0, position = 0;   ///< of the row's random number
  bool sample = false;              ///< false: the best id, the smaller one when equal
};

/// ids[row] of scores [rows, vocabulary], which penalties and bans have changed already: scores / temperature, of which the top_k best and their equals
/// stay; then all but the tail whose probabilities, summed from the least likely up, stay within 1 - top_p; then what is at least min_p as likely as the
/// best; of these the first, in order of ids, whose cumulated probability exceeds Philox(seed, sequence, position) (Salmon et al. 2011).
///
/// Weights exp(score - best) are whole numbers of 2^-44, so that sums do not depend on their order: the same row gives the same token in any batch. The host
/// sums doubles; the two choose differently only where an edge lies within about 2^-30 of a probability.
struct Sample {
  const float* scores = nullptr;    ///< rows score_stride apart
  int64_t score_stride = 0;
  const RowSampling* sampling = nullptr;   ///< [rows], on the device
  int32_t* ids = nullptr;           ///< [rows]
  int64_t rows = 0, vocabulary = 0; ///< vocabulary <= 2^19
};
void sample(const Sample&, Stream);

}  // namespace pm::ops::cuda
