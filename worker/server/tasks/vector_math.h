// SPDX-License-Identifier: Apache-2.0
// Arithmetic on scores and embedding vectors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/server/serving/embedding.h"

namespace pm::server {

std::vector<double> softmax(std::span<const float> logits);
double sigmoid(double logit);
/// Scales a vector to length 1; a vector of zeros stays unchanged.
void normalize(std::span<float> vector);
/// Returns the cosine of two vectors of equal size; 0 when one of them is all zero.
double cosine(std::span<const float> a, std::span<const float> b);

/// Compares two vectors of equal size; distances are negative.
double similarity_of(Similarity how, std::span<const float> a, std::span<const float> b);

/// Returns the indices of the `n` largest scores in descending order; ties are in ascending order of index.
std::vector<size_t> top_indices(std::span<const double> scores, size_t n);

}  // namespace pm::server
