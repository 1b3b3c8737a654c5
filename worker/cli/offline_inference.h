// SPDX-License-Identifier: Apache-2.0
// Offline inference: `forward` and `generate` run a model on a group of ranks, either threads or processes, without a
// server.
#pragma once
#include <memory>
#include <vector>

#include "worker/cli/tensor_file.h"
#include "worker/engine/ranks/rank_group.h"
#include "worker/engine/sampling/parameters.h"
#include "worker/engine/scheduling/data_parallel_engine.h"
#include "worker/policy/spec/model.h"
#include "worker/server/retrieval/retrieval_engine.h"

namespace pm::cli {

/// Runs one forward pass over tensors under Hugging Face's names (worker/models/inputs.h), in micro-batches if the plan
/// has them. Throws Error{Request} that names the invalid tensor.
/// `adapters` has slots for `adapter`, a folder; empty: the base model runs.
Arrays run_forward(engine::RankGroup&, const policy::Model&, const Plan&, engine::ForwardRequest,
                   const layers::AdapterCapacity& adapters = {}, const std::string& adapter = {});

/// Returns the limits of the engine for this model, for each data-parallel rank of the plan. `sequence_length` is the
/// plan's maximum; with 0 only the model's positions limit it.
engine::Limits engine_limits(const policy::Model&, const Plan&, int64_t sequence_length, int64_t kv_blocks,
                             int64_t concurrency, int64_t queue);

/// Returns a check of requests of the generator against the limits of its engine.
server::RetrievalEngine::Check request_check(const engine::Limits&);

/// A generated sequence, with its score if beam search was used.
struct GeneratedSequence {
  std::vector<int32_t> tokens;
  size_t start = 0;  ///< tokens before the answer
  double score = 0;
  std::shared_ptr<const std::vector<engine::RetrievedPassage>> passages = {};  ///< that were found for the prompt
};

/// What to generate from: tokens, and with an encoder of images or audio its inputs, of which the tokens continue the
/// answer's start.
struct Prompt {
  std::vector<int32_t> tokens;
  Arrays source;
  std::string adapter = {};  ///< its folder; empty: the base model answers
};

/// Returns one prompt for each row of an encoder's inputs of images or audio. Throws Error{InvalidRequest} for tensors
/// of different numbers of rows.
std::vector<Prompt> prompts_of(const Arrays& inputs);

/// Returns the number of KV blocks that generating from all `prompts` concurrently takes.
int64_t generation_blocks(const policy::Model&, const std::vector<Prompt>& prompts, const engine::GenerationConfig&);
/// Generates from each prompt and returns prompt and answer, num_return_sequences in a row for each prompt, as
/// transformers.generate returns them: with the end token, but without padding. An encoder-decoder returns the answer
/// with its start token. `retriever` is nullptr but for a model that retrieves, whose prompts are questions.
/// `adapters` has slots for those of the prompts.
std::vector<GeneratedSequence> run_generation(engine::RankGroup&, const policy::Model&, const Plan&, int64_t kv_blocks,
                                              const std::vector<Prompt>& prompts, const engine::GenerationConfig&,
                                              const server::Retriever* retriever = nullptr,
                                              const layers::AdapterCapacity& adapters = {});

}  // namespace pm::cli
