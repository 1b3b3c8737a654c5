// SPDX-License-Identifier: Apache-2.0
// Plans a draft model beside the model that it drafts for (speculative decoding). It is small, and whole on rank 0: a
// product cut over ranks would wait for others longer than it computes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "planner/plan.h"

namespace pm {

/// Sequences of the longest length for which a draft model has KV blocks. With more of them speculation hardly pays,
/// because their rows keep the devices busy.
inline constexpr int64_t max_drafting_sequences = 8;

/// Returns the plan of a model as a draft model: whole on one rank, in the dtype of its checkpoint, for at most
/// `sequence_length` tokens (0: the most that it serves). Its memory is not limited here. Throws std::invalid_argument
/// with the reason where it cannot be planned.
Plan draft_plan(const ModelMetadata&, int64_t sequence_length = 0);

/// Returns what the model takes as a draft model. Activations are an upper bound for every device, as
/// activation_bytes() is. Throws as draft_plan() does.
DraftNeeds draft_needs(const ModelMetadata&);

/// Returns the place of a draft model beside sequences of at most `sequence_length` tokens, of which `concurrency` run
/// at once.
PlannedDraft planned_draft(const DraftNeeds&, int64_t sequence_length, int64_t concurrency);

}  // namespace pm
