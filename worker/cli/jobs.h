// What `forward` and `generate` do with a group of ranks, whether these are threads or processes.
#pragma once
#include <vector>

#include "worker/cli/tensor_file.h"
#include "worker/engine/group.h"
#include "worker/engine/lanes.h"
#include "worker/policy/model.h"

namespace pm::cli {

/// One forward pass over inputs and outputs under Hugging Face's names (worker/models/inputs.h), in micro-batches where the plan has them. Throws
/// Error{Request} that names the tensor.
Arrays run_forward(engine::Group&, const policy::Model&, const Plan&, engine::ForwardRequest);

/// What the engine has to know of a model, for each lane of the plan. `sequence_length`: of the plan; 0: as long as the model goes.
engine::Limits limits_of(const policy::Model&, const Plan&, int64_t sequence_length, int64_t kv_blocks, int64_t concurrency, int64_t queue);

struct Generation {
  int64_t max_new_tokens = 20;     ///< Hugging Face's default
  int64_t max_length = 0;          ///< > 0: prompt and answer together
  int64_t min_length = 0;          ///< no end token before prompt (or start token) and answer together are so long
  engine::Sampling sampling;
  engine::Search search;
  double max_time = 0;             ///< seconds for each prompt; 0: no limit
  bool ignore_eos = false;
};

/// An answer, with its score where beams were searched.
struct Sequence { std::vector<int32_t> tokens; double score = 0; };

/// KV blocks that generating from `prompts` side by side takes.
int64_t generation_blocks(const policy::Model&, const std::vector<std::vector<int32_t>>& prompts, const Generation&);
/// Prompt and answer of each row, num_return_sequences after each other for each prompt, the end token included, as transformers.generate returns
/// them but without padding; of an encoder-decoder the answer with its start token.
std::vector<Sequence> run_generation(engine::Group&, const policy::Model&, const Plan&, int64_t kv_blocks, const std::vector<std::vector<int32_t>>& prompts, const Generation&);

}  // namespace pm::cli
