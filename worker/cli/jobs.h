// What `forward` and `generate` do with a group of ranks, whether these are threads or processes.
#pragma once
#include <vector>

#include "worker/cli/tensor_file.h"
#include "worker/engine/group.h"
#include "worker/policy/model.h"

namespace pm::cli {

/// KV blocks that one forward pass over `inputs` fills.
int64_t forward_blocks(const Tensors& inputs);
/// One forward pass under Hugging Face's names. Inputs: input_ids [batch, length], attention_mask and position_ids of the same shape
/// (absent: ones; 0, 1, ..). Outputs: logits or last_hidden_state, and as asked hidden_states.i [batch, length, hidden] and attentions.i
/// [batch, heads, length, length]; positions whose mask is 0 are zero. Throws Error{Request} that names the tensor.
Tensors run_forward(engine::Group&, const policy::Model&, const Tensors& inputs, bool hidden_states, bool attentions);

struct Generation {
  int64_t max_new_tokens = 20;     ///< Hugging Face's default
  int64_t max_length = 0;          ///< > 0: prompt and answer together
  engine::Sampling sampling;
  bool ignore_eos = false;
};

/// KV blocks that generating from `prompts` side by side takes.
int64_t generation_blocks(const std::vector<std::vector<int32_t>>& prompts, const Generation&);
/// Prompt and answer of each row, the end token included, as transformers.generate returns them but without padding.
std::vector<std::vector<int32_t>> run_generation(engine::Group&, const policy::Model&, int64_t kv_blocks,
                                                 const std::vector<std::vector<int32_t>>& prompts, const Generation&);

}  // namespace pm::cli
