// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/draft_model.h"

#include <algorithm>

#include "base/log.h"

namespace pm::engine {

class DraftModel::ModelDrafter final : public Drafter {
 public:
  explicit ModelDrafter(std::shared_ptr<DraftModel> model) : model_(std::move(model)) {}
  ~ModelDrafter() override {
    while (!sequences_.empty()) forget(sequences_.begin()->first);
  }
  Drafts propose(std::span<const DraftRequest> requests) override { return model_->propose(requests, sequences_); }
  void forget(int32_t slot) override { model_->release(sequences_, slot); }

 private:
  const std::shared_ptr<DraftModel> model_;
  Sequences sequences_;
};

DraftModel::DraftModel(std::unique_ptr<Rank> rank, const Limits& limits)
    : limits_(limits), rank_(std::move(rank), limits.vocabulary, limits.kv_blocks) {}

std::unique_ptr<Drafter> DraftModel::drafter(std::shared_ptr<DraftModel> model) {
  return std::make_unique<ModelDrafter>(std::move(model));
}

void DraftModel::release(Sequences& sequences, int32_t slot) {
  const auto found = sequences.find(slot);
  if (found == sequences.end()) return;
  const std::lock_guard lock(mutex_);
  rank_.close(found->second.table);
  sequences.erase(found);
}

/// Returns how many tokens the request may draft within the positions. The last draft has no row here.
int64_t DraftModel::count_of(const DraftRequest& request) const {
  return std::min(request.count, limits_.positions - static_cast<int64_t>(request.tokens.size()) + 1);
}

/// Returns the sequence of a request with blocks for its tokens and drafts, and as many of its tokens as are computed:
/// all but those behind the first that is new, and at least one. nullptr: it cannot draft.
DraftModel::Sequence* DraftModel::resume(const DraftRequest& request, Sequences& sequences) {
  const std::span<const int32_t> tokens = request.tokens;
  if (count_of(request) < 1) return nullptr;
  auto found = sequences.find(request.slot);
  if (found == sequences.end()) {
    found = sequences.emplace(request.slot, Sequence{}).first;
    rank_.open(found->second.table);
  }
  Sequence& own = found->second;
  const auto differs = std::mismatch(own.tokens.begin(), own.tokens.end(), tokens.begin(), tokens.end());
  size_t same = std::min(static_cast<size_t>(differs.first - own.tokens.begin()), tokens.size() - 1);
  if (own.tokens.empty() || same < std::min(own.known, own.tokens.size())) {  // a new sequence in this slot
    rank_.begin(own.table, tokens);
    same = own.table.cached_blocks * block_tokens;
    own.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(same));
  }
  if (std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(same), tokens.end(),
                  [&](int32_t id) { return id >= limits_.vocabulary; }))
    return nullptr;
  own.tokens.resize(same);
  own.known = tokens.size() - 1;
  rank_.cache_blocks(own.table, tokens, same);
  return rank_.grow(own.table, static_cast<int64_t>(tokens.size()) + count_of(request) - 1) ? &own : nullptr;
}

/// Adds an entry that computes the tokens behind those of the sequence.
void DraftModel::add_entry(Sequence& sequence, std::span<const int32_t> tokens, StepMessage& message) const {
  rank_.add_entry(sequence.table, sequence.tokens.size(), tokens, message);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
}

/// The first step reads what is new of each sequence, and further steps have one row for each draft. A text that is too
/// long for one step is read over several proposals.
Drafts DraftModel::propose(std::span<const DraftRequest> requests, Sequences& sequences) {
  Drafts drafts;
  drafts.tokens.resize(requests.size());
  const std::lock_guard lock(mutex_);
  if (failed_) return drafts;
  try {
    std::vector<std::pair<size_t, Sequence*>> resumed;
    for (size_t i = 0; i < requests.size(); ++i)
      if (Sequence* sequence = resume(requests[i], sequences)) resumed.emplace_back(i, sequence);
    const auto behind = [&](const auto& one) { return requests[one.first].tokens.size() - one.second->tokens.size(); };
    // those that are least behind first, so that a long text delays no other sequence
    std::stable_sort(resumed.begin(), resumed.end(),
                     [&](const auto& one, const auto& other) { return behind(one) < behind(other); });
    StepMessage message;
    std::vector<SamplingInput> inputs;
    std::vector<Open> open;
    open.reserve(resumed.size());  // inputs refer to the texts
    auto left = static_cast<size_t>(limits_.step_tokens);
    for (const auto& one : resumed) {
      const DraftRequest& request = requests[one.first];
      const size_t wanted = behind(one), rows = std::min(wanted, left);
      drafts.read_texts = drafts.read_texts || wanted > usually_behind;
      if (rows == 0) break;
      left -= rows;
      add_entry(*one.second, request.tokens.subspan(one.second->tokens.size(), rows), message);
      if (rows < wanted) break;
      open.push_back({one.first, one.second, {request.tokens.begin(), request.tokens.end()}});
      rank_.want_token(request, open.back().text, message, inputs);
    }
    while (!message.entries.empty()) {
      const std::vector<SamplerOutput> sampled = sample(message, inputs, rank_.run(message));
      message.entries.clear();
      inputs.clear();
      for (size_t i = 0; i < open.size(); ++i) {
        const int32_t id = sampled.at(i).tokens.at(0).id;
        const DraftRequest& request = requests[open[i].request];
        std::vector<int32_t>& own = drafts.tokens[open[i].request];
        if (id < limits_.target_vocabulary) own.push_back(id);
        if (id >= limits_.target_vocabulary || static_cast<int64_t>(own.size()) == count_of(request) ||
            is_end(*request.sampling, id)) {
          open[i].sequence = nullptr;
          continue;
        }
        open[i].text.push_back(id);
        add_entry(*open[i].sequence, {&id, 1}, message);
        rank_.want_token(request, open[i].text, message, inputs);
      }
      std::erase_if(open, [](const Open& one) { return !one.sequence; });
    }
  } catch (const std::exception& error) {
    LOG(ERROR) << "the draft model failed, and tokens come one by one from now on: " << error.what();
    failed_ = true;
    for (std::vector<int32_t>& own : drafts.tokens) own.clear();
  }
  return drafts;
}

}  // namespace pm::engine
