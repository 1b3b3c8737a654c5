// SPDX-License-Identifier: Apache-2.0
// Computes the bytes that a rank needs in addition to its weights. Values that are not exact are documented as upper
// bounds.
#pragma once
#include <cstdint>

#include "contract/kv_block.h"
#include "planner/model_metadata.h"
#include "planner/partition.h"
#include "planner/plan.h"

namespace pm {

constexpr int64_t float_bytes = 4;  ///< activations are fp32 on CPU whatever the precision of the weights

/// What a step is made of, beside the sequences of its requests.
struct StepSize {
  int64_t tokens = step_tokens;
  DeviceKind kind = DeviceKind::CPU;
  DType precision = DType::F32;  ///< of the plan
};

/// Returns the states of the longest input that cross-attention reads: all positions of an image, else as many as the
/// longest sequence has; 0 without cross-attention.
int64_t source_length(const ModelMetadata&, int64_t sequence_length);

/// Returns an upper bound of the bytes of tensors alive at once in one step of `rank`. T = tokens of the step (or C
/// where that is more and a sequence is never split: encoders and what attends to them, models that do not generate), C
/// = sequence length, or positions of an image where an answer is generated from one, h = hidden, d = head_dim, a and k
/// = the rank's heads and kv heads, K = all kv heads where they are fewer than ranks, else 0, f = its FFN columns, s =
/// rows that are scored in one step (sequences; of a fill-mask model all T), V = the vocabulary, u, c and e = the
/// rank's units, the channels and the states of a recurrence, c' and e' = those that all units share:
///   4 bytes x (5 T h                          residual, its sum, the norm, the block's result and its reduction
///              + 3 T i                       inputs of all layers (i = layers x width), where they read some
///              + max(T d (2a + 2k)            q, k, v and the attention's result; the most of the stack's layouts
///                      + max(2 a T C + 4 k d C + T C    scores and their softmax, keys and values gathered twice, the
///                      mask
///                          , T d (2 K + 6 k) if K > 0)  keys and values that ranks share out: the rank's rows, those
///                          of all, its own heads' twice
///                    , 3 T f                  up, gate, activated
///                    , u (8 T c + 2 e) + 8 T c' + 2 e')   a recurrent layer: its projections, their products, its
///                    states
///              + 2 s V)                       the rank's scores and, on rank 0, those of all
/// With latents of w numbers, keys and values are expanded for as many heads at once as contract/latent_tile.h says, in
/// place of a and k in the inner max, beside
///   w (2 C + 2 T + 4 min(s, T) a) + T h       latents, projections, queries and results of sequences that decode
/// Attention runs for one sequence at a time, so C counts once (worker/ops/cpu/attention.cpp). The kernels of GPUs hold
/// no scores: there the first line of the inner max is 4 k d C + T d a, keys and values in rows, and queries and
/// results in 16 bits. With quantized weights a GPU also holds a tile of widened weights (contract/widened_tile.h):
///   at most 2 x 32 MiB + 64 rows, and no more than all quantised elements of the rank take.
int64_t activation_bytes(const ModelMetadata&, const Partition&, int rank, int64_t sequence_length,
                         int64_t max_concurrency, const StepSize& step = {});

/// Returns the bytes of the states that one sequence keeps on `rank` in layers without keys and values: 4 bytes x
/// layers x (units of the rank x numbers of a unit + shared numbers) (Recurrence). 0 where no such layer generates.
int64_t state_bytes_per_sequence(const ModelMetadata&, const Partition&, int rank);

/// Returns the resident bytes of a rank's process that belong to no tensor: code and static data of LibTorch, threads,
/// HTTP, the tokenizer, the staging buffer of a loader. On a CPU, `serve` on x86-64 takes 157 MiB; the rest covers the
/// launcher (60 MiB, once per pod) and 8 MiB of staging. The value for GPUs covers context and libraries of CUDA, which
/// take 0.4 to 0.9 GiB.
int64_t runtime_bytes(DeviceKind);

/// Returns the bytes that a pipeline rank holds in addition to activation_bytes() of its stage: received and sent
/// hidden states [T, h] in fp32, and those of the encoder where a decoder reads them. That is 4 bytes x T h x (2, or
/// 3), of the widest stack; 0 for one stage. Inputs of layers, and keys and values that layers of later stages read,
/// are added twice. `tokens` are those of a step.
int64_t hop_bytes(const ModelMetadata&, int pipeline, int64_t sequence_length, int64_t tokens = step_tokens);

/// Returns the bytes of a replica's shared-memory segment: a slot of 4 MiB per rank, a ring of 1 MiB from rank 0 to
/// each other rank and one back, a ring of 128 KiB for each ordered pair (worker/comm/shared_memory/segment.h), and 1
/// MiB for header, status table and plan file. It does not depend on the model.
int64_t segment_bytes(int ranks);

}  // namespace pm
