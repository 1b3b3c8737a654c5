// See work.h.
#include "worker/engine/work.h"

#include <algorithm>

namespace pm::engine {

bool Work::ready(const Branch& branch) const {
  return branch.left() == 1 && (source.empty() || source_read) && (&branch == branches.data() || branch.after <= branches.front().computed);
}

bool Work::all_ready() const {
  return std::all_of(branches.begin(), branches.end(), [this](const Branch& branch) { return ready(branch); });
}

bool Work::done() const {
  return std::all_of(ended.begin(), ended.end(), [](bool one) { return one; });
}

int64_t most_blocks(int64_t prompt, int64_t max_new_tokens, int64_t source, int64_t width) {
  const int64_t shared = prompt / kv_block_tokens;
  return blocks_for(source) + shared + width * (blocks_for(prompt + max_new_tokens) - shared);
}

}  // namespace pm::engine
