// SPDX-License-Identifier: Apache-2.0
// Token sampling on the device that holds the logits: only the sampled ids are copied to the host.
#pragma once
#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}  // namespace at
namespace c10 {
enum class DeviceType : int8_t;
}

namespace pm::ops {

/// Sampling parameters of one token under Hugging Face's names. The random number is Philox(seed, sequence, position).
struct RowSampling {
  double temperature = 1, top_p = 1, min_p = 0;
  int64_t top_k = 0;  ///< 0: off
  uint64_t seed = 0, sequence = 0, position = 0;
  bool sample = false;  ///< false: greedy, the smaller id on ties; the other parameters are ignored
  bool operator==(const RowSampling&) const = default;
};

/// An edit of one logit before sampling: a negative logit is multiplied by `factor`, any other is divided by it; then
/// `subtrahend` is subtracted. An infinite `subtrahend` bans the id.
struct ScoreEdit {
  int32_t id = 0;
  float factor = 1, subtrahend = 0;
  bool operator==(const ScoreEdit&) const = default;
};

/// The tokens to sample from the rows of a matrix of logits; a row may be sampled several times, or not at all.
struct SampleBatch {
  std::vector<RowSampling> sampling;
  std::vector<int64_t> rows;       ///< the row of each sample
  std::vector<ScoreEdit> edits;    ///< each id at most once for each row
  std::vector<int64_t> edit_rows;  ///< the row of each edit
};

/// Largest vocabulary that the device sampler supports.
inline constexpr int64_t max_sample_vocabulary = int64_t{1} << 19;

/// Returns whether devices of this type have a sampler.
bool has_sampler(c10::DeviceType);
/// Samples from scores [rows, vocabulary] fp32, which are overwritten, and returns ids [samples] int64 on the same
/// device. Throws std::logic_error where has_sampler() is false.
at::Tensor sample(at::Tensor scores, const SampleBatch&);

}  // namespace pm::ops
