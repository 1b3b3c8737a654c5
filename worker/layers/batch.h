// One step's work for a stack: the tokens of all sequences after each other, nothing padded, and what to keep for the caller.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/ops/attention.h"

namespace pm::layers {

/// What `forward` asks to see beside the result. Hidden states are [tokens, hidden] in Hugging Face's order: input of each layer, then
/// the output after the final norm. attentions[layer][sequence] is [heads, queries, keys], gathered over the ranks on rank 0.
struct Capture {
  bool hidden_states = false, attentions = false;
  std::vector<at::Tensor> hidden;
  std::vector<std::vector<at::Tensor>> attention;
};

struct Batch {
  at::Tensor tokens;      ///< [tokens] int64
  at::Tensor positions;   ///< [tokens] int64
  at::Tensor slots;       ///< [tokens] int64: block * 16 + offset of the KV cache
  std::vector<ops::SequenceSpan> sequences;
  Capture* capture = nullptr;
};

}  // namespace pm::layers
