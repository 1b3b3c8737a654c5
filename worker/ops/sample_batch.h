// SPDX-License-Identifier: Apache-2.0
// The parameters of token sampling, as ranks send them and as kernels read them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

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

/// An edit of a logit of one row.
struct RowEdit {
  int32_t row = 0;
  ScoreEdit edit;
};

/// The tokens to sample from the rows of a matrix of logits; a row may be sampled several times, or not at all.
struct SampleBatch {
  std::vector<RowSampling> sampling;
  std::vector<int64_t> rows;   ///< the row of each sample
  std::vector<RowEdit> edits;  ///< each id at most once for each row
  /// Returns true when every token is the most likely one of unedited logits.
  bool is_greedy() const {
    return edits.empty() &&
           std::none_of(sampling.begin(), sampling.end(), [](const RowSampling& one) { return one.sample; });
  }
};

/// Largest vocabulary that the device sampler supports.
inline constexpr int64_t max_sample_vocabulary = int64_t{1} << 19;

}  // namespace pm::ops
