// SPDX-License-Identifier: Apache-2.0
// Rows of generation whose steps overlap (policy::Recompute::Overlap).
#pragma once
#include "worker/layers/batch.h"
#include "worker/policy/spec/recompute.h"

namespace pm::models {

/// Completes the layout of whole sequences: the columns of their rows, and which rows they do not see.
///
/// The first step reads a prompt of P tokens; the step behind it reads tokens P and P + 1, the next one P + 1 and P +
/// 2, and so on. The rows of a sequence are the P tokens, then the two tokens of each later step, then the target. A
/// row sees those of its step, and of each earlier step the rows but the last, as those stood in `memory`. Source:
/// transformers' XLNetLMHeadModel.prepare_inputs_for_generation and XLNetModel.cache_mem.
void lay_out_overlap(const policy::Recompute::Overlap&, layers::Batch&);

}  // namespace pm::models
