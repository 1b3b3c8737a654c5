// See sampler.h.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace pm::engine {

namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

/// Keeps the k best and what equals the k-th.
void keep_top_k(std::vector<float>& scores, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(scores.size())) return;
  std::vector<float> sorted = scores;
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float least = sorted[static_cast<size_t>(k - 1)];
  for (float& score : scores) if (score < least) score = never;
}

/// Drops the tail whose probabilities, summed from the least likely up, stay within 1 - p; the best always stays.
void keep_top_p(std::vector<float>& scores, double p) {
  if (p >= 1) return;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] < scores[b]; });
  const float best = scores[order.back()];
  double total = 0, tail = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - best);
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    tail += std::exp(static_cast<double>(scores[order[i]]) - best) / total;
    if (tail > 1 - p) return;
    scores[order[i]] = never;
  }
}

}  // namespace

std::vector<float> processed(std::span<const float> logits, const Sampling& sampling) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (sampling.temperature != 1) {
    for (float& score : scores) score = static_cast<float>(score / sampling.temperature);
  }
  keep_top_k(scores, sampling.top_k);
  keep_top_p(scores, sampling.top_p);
  return scores;
}

int64_t draw(std::span<const float> logits, const Sampling& sampling, double u) {
  const std::vector<float> scores = processed(logits, sampling);
  const float best = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (float score : scores) total += std::exp(static_cast<double>(score) - best);
  double cumulated = 0;
  int64_t last = 0;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == never) continue;
    cumulated += std::exp(static_cast<double>(scores[id]) - best) / total;
    last = static_cast<int64_t>(id);
    if (cumulated > u) break;
  }
  return last;
}

}  // namespace pm::engine
