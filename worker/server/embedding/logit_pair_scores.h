// SPDX-License-Identifier: Apache-2.0
// Scores pairs of texts with a causal model, as serving/logit_score.h describes it.
#pragma once
#include "worker/server/embedding/pair_scores.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {

/// The schemas of "prompt" and "prompt_name" where the model reads both texts of a pair together, behind an
/// instruction; else nothing.
schema::Properties instruction_schema(const ServerContext&);
/// Reads these fields and returns the instruction, by default the folder's; an empty one where the model reads none.
/// Throws ApiError 400 for a name that the folder does not have, or for both fields.
std::string read_instruction(Fields&, const ServerContext&);

/// Returns the logit of the true token behind the prompt of each pair, less that of the false token where there is one,
/// before any activation. Throws ApiError: 413 for a prompt that is too long, 400 where the model has no tokenizer or
/// its chat template refuses a pair.
PairScores score_by_logits(const ServerContext&, const RoutedRequest&, const PairRequest&);

}  // namespace pm::server
