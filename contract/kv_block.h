// SPDX-License-Identifier: Apache-2.0
// The sizes on which planner, scheduler and kernels must agree. nvcc compiles this header too, so it is C++17 and
// includes no library.
#pragma once
#include <cstdint>

namespace pm {

/// Tokens of one KV block (vLLM: block_size). An int, so that kernels multiply it in 32 bits.
inline constexpr int block_tokens = 16;

/// Bytes of the scale that the key, and the value, of a token has for each kv head where the cache holds integers of
/// eight bits: one F32 number. An int for the same reason.
inline constexpr int kv_scale_bytes = 4;

/// Maximum tokens of one engine step on CPUs; longer prompts are prefilled in chunks.
inline constexpr int64_t step_tokens = 512;

/// The same on GPUs, whose multiprocessors a chunk of 512 tokens does not fill. A plan has fewer where their
/// activations would take much of its memory (grow_step of planner/strategies/layout.h).
inline constexpr int64_t max_gpu_step_tokens = 2048;

/// Returns the number of KV blocks that `tokens` tokens need.
constexpr int64_t blocks_for(int64_t tokens) { return (tokens + block_tokens - 1) / block_tokens; }

}  // namespace pm
