// SPDX-License-Identifier: Apache-2.0
// Computes the vector of a text from the states of its tokens, by the modules of sentence-transformers.
#pragma once
#include <vector>

#include "worker/server/serving/embedding.h"

namespace pm::server {

/// Pools the states [tokens, width] of one sequence, of which the first `skipped` tokens are left out.
std::vector<float> pool(const std::vector<Pooling>& poolings, const float* states, size_t tokens, size_t width,
                        size_t skipped = 0);

/// Returns the result of one module for a vector of its width.
std::vector<float> apply(const VectorModule& module, std::vector<float> vector);

}  // namespace pm::server
