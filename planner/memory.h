// Bytes that a rank needs beside its weights, each with its formula. What is not exact is an upper bound, and says so.
#pragma once
#include <cstdint>

#include "planner/cuts.h"
#include "planner/facts.h"
#include "planner/plan.h"

namespace pm {

constexpr int64_t block_tokens = 16;        ///< tokens of a KV block (ENGINE.md 4)
constexpr int64_t step_tokens = 512;        ///< most prompt tokens of one step: longer prompts enter in chunks
constexpr int64_t float_bytes = 4;          ///< activations are fp32 on CPU whatever the precision of the weights

/// Upper bound of the tensors alive at once in one step of `rank`. T = step_tokens (or C where that is more
/// and a sequence is never split: encoders and what attends to them, models that do not generate), C = sequence length, h = hidden, d = head_dim,
/// a and k = the rank's heads and kv heads, K = all kv heads where they are fewer than ranks, else 0, f = its FFN columns, s = rows that are scored in one step (sequences; of a fill-mask model all T), V = the vocabulary:
///   4 bytes x (5 T h                          residual, its sum, the norm, the block's result and its reduction
///              + max(T d (2a + 2k)            q, k, v and the attention's result
///                      + max(2 a T C + 4 k d C + T C    scores and their softmax, keys and values gathered twice, the mask
///                          , T d (2 K + 6 k) if K > 0)  keys and values that ranks share out: the rank's rows, those of all, its own heads' twice
///                    , 3 T f)                 up, gate, activated
///              + 2 s V)                       the rank's scores and, on rank 0, those of all
/// One sequence is attended to at a time, so C counts once (worker/ops/cpu/attention.cpp).
int64_t activation_bytes(const Facts&, const Cuts&, int rank, int64_t sequence_length, int64_t max_concurrency);

/// Resident bytes of a rank's process that belong to no tensor: code and static data of LibTorch, threads, HTTP, the tokenizer, a loader's
/// staging. CPU: 157 MiB measured with `serve` on x86-64; the rest covers the launcher (60 MiB of its own, once per pod) and 8 MiB staging.
/// GPU: not measured by this version; context and libraries of CUDA are known to take 0.4 to 0.9 GiB.
int64_t runtime_bytes(DeviceKind);

/// What a rank of a pipeline holds beside activation_bytes() of its stage: hidden states [T, h] fp32 on their way in and out, and those of the
/// encoder where a decoder reads them: 4 bytes x T h x (2, or 3), of the widest stack. 0 for one stage.
int64_t hop_bytes(const Facts&, int pipeline, int64_t sequence_length);

/// The shared-memory segment of a group: per rank a slot of 4 MiB, a ring of 1 MiB from rank 0 to each other and one back, a ring of 128 KiB for
/// each ordered pair (worker/comm/segment.h), and 1 MiB for header, status board and plan file. Independent of the model's size.
int64_t segment_bytes(int ranks);

}  // namespace pm
