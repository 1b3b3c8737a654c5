// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/vector_math.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pm::server {

std::vector<double> softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> scores;
  scores.reserve(logits.size());
  double sum = 0;
  for (float logit : logits) sum += scores.emplace_back(std::exp(static_cast<double>(logit) - most));
  for (double& score : scores) score /= sum;
  return scores;
}

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

void normalize(std::span<float> vector) {
  double sum = 0;
  for (float value : vector) sum += static_cast<double>(value) * value;
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

double similarity_of(Similarity how, std::span<const float> a, std::span<const float> b) {
  if (how == Similarity::Cosine) return cosine(a, b);
  double dot = 0, squares = 0, distances = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    dot += static_cast<double>(a[i]) * b[i];
    squares += difference * difference;
    distances += std::abs(difference);
  }
  return how == Similarity::Dot ? dot : how == Similarity::Euclidean ? -std::sqrt(squares) : -distances;
}

std::vector<size_t> top_indices(std::span<const double> scores, size_t n) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  n = std::min(n, order.size());
  const auto before = [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), order.end(), before);
  order.resize(n);
  return order;
}

}  // namespace pm::server
