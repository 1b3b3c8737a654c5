// SPDX-License-Identifier: Apache-2.0
// An image among the tokens of a prompt: where it stands, and what a forward pass has made of it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace pm::engine {

/// The rows stand in place of the embeddings of these tokens. They are computed once, before the prompt, so that its
/// chunks, preemptions and later requests with the same image need no other pass of the tower.
struct PromptImage {
  int64_t first = 0, tokens = 0;  ///< places in the prompt, one behind the other
  int64_t down = 0, across = 0;   ///< rows and columns of these, where tokens have positions along axes; else 0
  int32_t key = -1;               ///< negative, and the same for the same rows alone: what prefixes are compared by
  std::shared_ptr<const std::vector<float>> rows;  ///< [tokens, hidden of the model], or more of which these are
  int64_t first_row = 0;                           ///< the ones from here on
};

}  // namespace pm::engine
