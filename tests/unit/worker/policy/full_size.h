// SPDX-License-Identifier: Apache-2.0
// Checkpoints of published models in full size, as sparse files: names and shapes as on the Hugging Face hub, values
// that take no room.
#pragma once
#include <string>
#include <vector>

#include "tests/unit/worker/policy/synthetic.h"

namespace pm::policy {

struct FullSize {
  std::string name;
  Synthetic checkpoint;
  int64_t parameters = 0;  ///< as published, in elements
};

/// EleutherAI/gpt-neo-2.7B and gpt-j-6B in fp16, t5-3b in fp32, huggyllama/llama-7b in fp16, tiiuae/falcon-7b in bf16.
std::vector<FullSize> full_sizes();

}  // namespace pm::policy
