// SPDX-License-Identifier: Apache-2.0
// Tokens of one sequence that go through a state by chunks, and how much of what they write is left at later ones.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pm::ops {

/// The decays of one chunk, of heads that forget at rates of their own.
struct ChunkDecays {
  /// `logarithms` [heads, tokens] of what the state is multiplied by before each token, at most 0.
  explicit ChunkDecays(const at::Tensor& logarithms);
  at::Tensor shrunk;   ///< [heads, tokens, 1]: of the state before the chunk, at each token
  at::Tensor between;  ///< [heads, tokens, tokens]: of what column j wrote, at row i; 0 where j is later
  at::Tensor left;     ///< [heads, tokens, 1]: of what each token wrote, behind the chunk
  at::Tensor whole;    ///< [heads, 1, 1]: of the state before the chunk, behind it
};

/// Runs tokens in order and returns their results below each other. `step(i, states)` runs token i from states with a
/// first dimension of 1 and advances them; `chunk(first, count)` runs several from `state` and advances it. Few tokens
/// are faster by steps.
template <typename Step, typename Chunk>
at::Tensor run_by_chunks(int64_t tokens, at::Tensor& state, const Step& step, const Chunk& chunk) {
  constexpr int64_t tokens_of_chunk = 64, few_tokens = 16;
  std::vector<at::Tensor> results;
  if (tokens < few_tokens) {
    at::Tensor states = state.unsqueeze(0);
    for (int64_t i = 0; i < tokens; ++i) results.push_back(step(i, states));
    state = states.squeeze(0);
  } else {
    for (int64_t first = 0; first < tokens; first += tokens_of_chunk)
      results.push_back(chunk(first, std::min(tokens_of_chunk, tokens - first)));
  }
  return at::cat(results);
}

}  // namespace pm::ops
