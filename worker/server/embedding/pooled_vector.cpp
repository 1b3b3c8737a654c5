// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/pooled_vector.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

std::vector<float> pool_one(Pooling pooling, const float* states, size_t tokens, size_t width, size_t skipped) {
  const auto row = [&](size_t t) { return std::span(states + t * width, width); };
  if (pooling == Pooling::First || pooling == Pooling::Last) {
    const auto one = row(pooling == Pooling::First ? skipped : tokens - 1);
    return {one.begin(), one.end()};
  }
  if (pooling == Pooling::Max) {
    std::vector<float> most(row(skipped).begin(), row(skipped).end());
    for (size_t t = skipped + 1; t < tokens; ++t)
      for (size_t i = 0; i < width; ++i) most[i] = std::max(most[i], row(t)[i]);
    return most;
  }
  std::vector<double> sum(width);
  double weights = 0;
  for (size_t t = skipped; t < tokens; ++t) {
    const double weight = pooling == Pooling::WeightedMean ? static_cast<double>(t + 1) : 1;
    weights += weight;
    for (size_t i = 0; i < width; ++i) sum[i] += weight * row(t)[i];
  }
  const double by = pooling == Pooling::MeanSqrt ? std::sqrt(weights) : weights;
  std::vector<float> mean;
  for (double value : sum) mean.push_back(static_cast<float>(value / by));
  return mean;
}

/// Returns x M for a matrix [x.size(), outputs], row by row, so that the inner loop runs over adjacent elements.
std::vector<float> product(const std::vector<float>& x, const std::vector<float>& matrix, size_t outputs) {
  std::vector<float> y(outputs);
  for (size_t i = 0; i < x.size(); ++i) {
    const float* row = matrix.data() + i * outputs;
    for (size_t o = 0; o < outputs; ++o) y[o] += x[i] * row[o];
  }
  return y;
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::Identity:
      return x;
    case Activation::Tanh:
      return std::tanh(x);
    case Activation::Relu:
      return std::max(x, 0.f);
    case Activation::Gelu:  // x Phi(x)
      return 0.5f * x * (1 + std::erf(x * static_cast<float>(M_SQRT1_2)));
    case Activation::Sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::Silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

std::vector<float> apply_to(const DenseModule& dense, const std::vector<float>& x) {
  std::vector<float> y = product(x, dense.weight, dense.outputs);
  for (size_t o = 0; o < y.size(); ++o)
    y[o] = activate(dense.activation, dense.bias.empty() ? y[o] : y[o] + dense.bias[o]);
  if (!dense.adds_input) return y;
  const std::vector<float> added = dense.residual.empty() ? x : product(x, dense.residual, dense.outputs);
  for (size_t o = 0; o < y.size(); ++o) y[o] += added[o];
  return y;
}

std::vector<float> apply_to(const LayerNormModule& norm, std::vector<float> x) {
  constexpr double epsilon = 1e-5;  // of torch.nn.LayerNorm
  double mean = 0, variance = 0;
  for (float value : x) mean += value;
  mean /= static_cast<double>(x.size());
  for (float value : x) variance += (value - mean) * (value - mean);
  const double by = 1 / std::sqrt(variance / static_cast<double>(x.size()) + epsilon);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((x[i] - mean) * by) * norm.gain[i] + norm.bias[i];
  return x;
}

std::vector<float> apply_to(const NormalizeModule&, std::vector<float> x) {
  normalize(x);
  return x;
}

}  // namespace

std::vector<float> pool(const std::vector<Pooling>& poolings, const float* states, size_t tokens, size_t width,
                        size_t skipped) {
  skipped = std::min(skipped, tokens - 1);  // a text of which nothing is left keeps its last token
  std::vector<float> vector;
  for (Pooling pooling : poolings) {
    const auto one = pool_one(pooling, states, tokens, width, skipped);
    vector.insert(vector.end(), one.begin(), one.end());
  }
  return vector;
}

std::vector<float> apply(const VectorModule& module, std::vector<float> vector) {
  return std::visit([&](const auto& one) { return apply_to(one, std::move(vector)); }, module);
}

}  // namespace pm::server
