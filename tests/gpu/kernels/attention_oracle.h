// SPDX-License-Identifier: Apache-2.0
// The attention formula in fp64, and a paged cache to hold the keys.
#pragma once
#include <algorithm>
#include <numeric>

#include "tests/gpu/kernels/device.h"
#include "worker/ops/cuda/attention.h"

namespace pm::cuda_test {

/// Score terms that the tests enable; arrays are on the host.
struct Terms {
  double scale = 0.3, softcap = 0;
  bool causal = true;
  int64_t window = 0;
  std::vector<float> slopes;  ///< [heads]
  bool slopes_scaled = false, slopes_bf16 = false;
  std::vector<float> relative;  ///< [heads, 2 reach + 1]
  int64_t reach = 0;
  std::vector<float> sinks = {};  ///< [heads]
};

/// The terms as the kernels take them, with the arrays that they point to.
struct DeviceTerms {
  Buffer<float> slopes, relative, sinks;
  ops::cuda::Scores scores;
  explicit DeviceTerms(const Terms& terms) : slopes(terms.slopes), relative(terms.relative), sinks(terms.sinks) {
    scores = {.scale = static_cast<float>(terms.scale),
              .softcap = static_cast<float>(terms.softcap),
              .causal = terms.causal,
              .window = terms.window,
              .slopes = terms.slopes.empty() ? nullptr : slopes.data(),
              .slopes_scaled = terms.slopes_scaled,
              .slopes_bf16 = terms.slopes_bf16,
              .relative = terms.relative.empty() ? nullptr : relative.data(),
              .reach = terms.reach,
              .sinks = terms.sinks.empty() ? nullptr : sinks.data()};
  }
};

/// Returns softmax(terms(q k^T)) v for one head of one query at `position`; keys and values of key j are at [j], d
/// numbers each. Without keys the result is 0.
inline std::vector<double> attended(const float* q, int64_t d, int64_t position, size_t head, const Terms& terms,
                                    int64_t keys, const std::function<const float*(int64_t)>& key_at,
                                    const std::function<const float*(int64_t)>& value_at) {
  std::vector<double> scores(static_cast<size_t>(keys), -INFINITY), out(static_cast<size_t>(d), 0.0);
  double largest = -INFINITY, total = 0;
  for (int64_t j = 0; j < keys; ++j) {
    if ((terms.causal && j > position) || (terms.window > 0 && std::abs(position - j) >= terms.window)) continue;
    double score = 0;
    for (int64_t i = 0; i < d; ++i) score += static_cast<double>(q[i]) * static_cast<double>(key_at(j)[i]);
    score *= terms.scale;
    if (terms.softcap > 0) score = terms.softcap * std::tanh(score / terms.softcap);
    if (!terms.slopes.empty()) {
      double more = terms.slopes[head] * static_cast<double>(j);
      if (terms.slopes_bf16)
        more = rounded(rounded(terms.slopes[head], Element::BF16) * rounded(static_cast<float>(j), Element::BF16),
                       Element::BF16);
      score += terms.slopes_scaled ? more * terms.scale : more;
    }
    if (!terms.relative.empty())
      score += terms.relative[head * static_cast<size_t>(2 * terms.reach + 1) +
                              static_cast<size_t>(terms.reach + std::clamp(j - position, -terms.reach, terms.reach))];
    scores[static_cast<size_t>(j)] = score;
    largest = std::max(largest, score);
  }
  if (!terms.sinks.empty()) {
    largest = std::max<double>(largest, terms.sinks[head]);
    total = std::exp(terms.sinks[head] - largest);
  }
  for (double& score : scores) total += score = score == -INFINITY ? 0 : std::exp(score - largest);
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t i = 0; i < d && total > 0; ++i)
      out[static_cast<size_t>(i)] += scores[static_cast<size_t>(j)] / total * static_cast<double>(value_at(j)[i]);
  }
  return out;
}

/// Keys and values of several sequences in scattered blocks; unused entries are NaN.
class PagedCache {
 public:
  PagedCache(const std::vector<int64_t>& lengths, int64_t kv_heads, int64_t d, Element type, uint64_t seed)
      : kv_heads_(kv_heads), d_(d) {
    int64_t blocks = 1;
    for (int64_t length : lengths) {
      blocks += (length + 15) / 16;
      stride = std::max(stride, (length + 15) / 16);
    }
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    const auto elements = static_cast<size_t>(blocks * block_elements());
    std::vector<float> k(elements, NAN), v(elements, NAN);
    table.assign(lengths.size() * static_cast<size_t>(stride), -1);
    const std::vector<float> all = numbers(2 * elements, seed + 1);
    size_t next = 0, number = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int64_t token = 0; token < lengths[s]; ++token) {
        if (token % 16 == 0) table[s * static_cast<size_t>(stride) + static_cast<size_t>(token / 16)] = order[next++];
        for (int64_t head = 0; head < kv_heads; ++head) {
          for (int64_t i = 0; i < d; ++i) {
            const size_t place = at(s, token, head) + static_cast<size_t>(i);
            k[place] = rounded(all[number++], type);
            v[place] = rounded(all[number++], type);
          }
        }
      }
    }
    keys = std::make_unique<Floats>(k, type);
    values = std::make_unique<Floats>(v, type);
  }
  int64_t block_elements() const { return kv_heads_ * 16 * d_; }
  size_t at(size_t sequence, int64_t token, int64_t head) const {
    const int64_t block = table[sequence * static_cast<size_t>(stride) + static_cast<size_t>(token / 16)];
    return static_cast<size_t>(block * block_elements() + (head * 16 + token % 16) * d_);
  }

  int64_t stride = 1;
  std::vector<int32_t> table;
  std::unique_ptr<Floats> keys, values;

 private:
  int64_t kv_heads_, d_;
};

inline std::vector<float> slopes_of(size_t heads) {
  std::vector<float> slopes(heads);
  for (size_t i = 0; i < heads; ++i) slopes[i] = std::exp2(-static_cast<float>(i + 1));
  return slopes;
}

}  // namespace pm::cuda_test
