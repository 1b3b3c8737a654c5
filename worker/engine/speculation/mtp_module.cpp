// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/mtp_module.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace pm::engine {

namespace {

/// Rows of a sequence that may wait until it drafts, as in a pause. More rows of a prompt are computed at once, so that
/// their states need not be held. Those of an answer are dropped, so that a long pause costs nothing: pauses grow this
/// long only where drafts do not pay.
constexpr int64_t most_waiting = 32;

}  // namespace

class MtpModule::ModuleDrafter final : public Drafter {
 public:
  explicit ModuleDrafter(std::shared_ptr<MtpModule> module) : module_(std::move(module)) {}
  ~ModuleDrafter() override {
    while (!sequences_.empty()) forget(sequences_.begin()->first);
  }
  Drafts propose(std::span<const DraftRequest> requests) override { return module_->propose(requests, sequences_); }
  void observe(std::span<const TokenStates> states) override { module_->observe(states, sequences_); }
  void fork(int32_t parent, int32_t slot) override { module_->fork(parent, slot, sequences_); }
  void forget(int32_t slot) override { module_->release(sequences_, slot); }

 private:
  const std::shared_ptr<MtpModule> module_;
  Sequences sequences_;
};

MtpModule::MtpModule(std::unique_ptr<Rank> rank, const Limits& limits)
    : limits_(limits), rank_(std::move(rank), limits.vocabulary, limits.kv_blocks) {}

std::unique_ptr<Drafter> MtpModule::drafter(std::shared_ptr<MtpModule> module) {
  return std::make_unique<ModuleDrafter>(std::move(module));
}

template <typename Body>
void MtpModule::guarded(const Body& body) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  try {
    body();
  } catch (const std::exception& error) {
    LOG(ERROR) << "multi-token prediction failed, and tokens come one by one from now on: " << error.what();
    failed_ = true;
  }
}

void MtpModule::release(Sequences& sequences, int32_t slot) {
  const auto found = sequences.find(slot);
  if (found == sequences.end()) return;
  const std::lock_guard lock(mutex_);
  rank_.close(found->second.table);
  sequences.erase(found);
}

/// Begins a sequence whose states are known from `position` on.
void MtpModule::start(Sequence& sequence, std::span<const int32_t> tokens, int64_t position) {
  sequence.first = position;
  sequence.rows = 0;
  sequence.states.reset();
  if (position == 0) return rank_.clear(sequence.table);
  const auto rows = static_cast<size_t>(position);
  rank_.begin(sequence.table, tokens.first(rows + 1));  // whose last token is never of the prefix
  if (sequence.table.blocks.size() * block_tokens != rows) return rank_.clear(sequence.table);
  sequence.first = 0;
  sequence.rows = position;
}

/// Begins a sequence behind the last token whose state is known, because there is no block for it.
void MtpModule::restart(Sequence& sequence) {
  sequence.first = sequence.end();
  sequence.rows = 0;
  sequence.states.reset();
  rank_.clear(sequence.table);
}

void MtpModule::append(const TokenStates& given, Sequences& sequences) {
  const auto [found, is_new] = sequences.try_emplace(given.slot);
  Sequence& own = found->second;
  if (is_new) rank_.open(own.table);
  if (is_new || given.first > own.end() || given.first < own.first) start(own, given.tokens, given.first);
  const int64_t known = own.end() - given.first, rows = given.rows.size(0) - known;  // of a step that is run again
  if (rows <= 0) return;
  const at::Tensor states = given.rows.narrow(0, known, rows);
  own.states = own.states.defined() ? at::cat({own.states, states}) : states.clone();
  if (own.waiting() > most_waiting && !own.awaits_prompt(given.prompt)) drop_beginning(own);
}

/// Keeps the last states of a sequence alone, as if no others were known.
void MtpModule::drop_beginning(Sequence& own) {
  constexpr int64_t kept = most_waiting / 2;
  const int64_t end = own.end();
  own.states = own.states.narrow(0, own.waiting() - kept, kept).clone();
  own.first = end - kept;
  own.rows = 0;
  rank_.clear(own.table);
}

/// Adds an entry for the next rows of a sequence, whose states are known. Returns false, and begins it again, where
/// there are no blocks for it.
bool MtpModule::add_rows(Sequence& own, std::span<const int32_t> tokens, int64_t rows, Step& step) {
  if (!rank_.grow(own.table, own.rows + rows)) {
    restart(own);
    return false;
  }
  const auto next = static_cast<size_t>(own.first + own.rows + 1), count = static_cast<size_t>(rows);
  rank_.add_entry(own.table, static_cast<size_t>(own.rows), tokens.subspan(next, count), step.message);
  step.message.entries.back().position_shift = static_cast<int32_t>(own.first);
  step.states.push_back(own.states.narrow(0, 0, rows));
  own.states = rows < own.waiting() ? own.states.narrow(0, rows, own.waiting() - rows).clone() : at::Tensor();
  own.rows += rows;
  // Blocks are known by their own tokens, though the last row of one depends on the token behind them too.
  if (own.first == 0) rank_.cache_blocks(own.table, tokens, static_cast<size_t>(own.rows));
  return true;
}

/// Computes the rows of prompts of which too many wait, but for the last ones, from which they draft.
void MtpModule::catch_up(std::span<const TokenStates> all, Sequences& sequences) {
  for (size_t next = 0; next < all.size();) {
    Step step;
    for (int64_t left = limits_.step_tokens; next < all.size() && left > 0;) {
      Sequence& own = sequences.at(all[next].slot);
      const auto are_too_many = [&] { return own.waiting() > most_waiting && own.awaits_prompt(all[next].prompt); };
      const int64_t rows = are_too_many() ? std::min(own.waiting() - 1, left) : 0;
      if (rows > 0 && add_rows(own, all[next].tokens, rows, step)) left -= rows;
      next += !are_too_many();
    }
    if (!step.message.entries.empty()) rank_.run(step.message, at::cat(step.states));
  }
}

void MtpModule::observe(std::span<const TokenStates> all, Sequences& sequences) {
  guarded([&] {
    for (const TokenStates& one : all) append(one, sequences);
    catch_up(all, sequences);
  });
}

void MtpModule::fork(int32_t parent, int32_t slot, Sequences& sequences) {
  guarded([&] {
    const auto found = sequences.find(parent);
    if (found == sequences.end() || sequences.contains(slot)) return;
    const Sequence& from = found->second;
    Sequence& child = sequences[slot];
    rank_.open(child.table);
    child.first = from.first;
    child.rows = from.rows;
    child.states = from.states;
    if (!rank_.fork(from.table, child.table, static_cast<size_t>(from.rows))) restart(child);
  });
}

/// Returns how many tokens the request may draft within the positions. The last draft has no row here.
int64_t MtpModule::count_of(const DraftRequest& request) const {
  return std::min(request.count, limits_.positions - static_cast<int64_t>(request.tokens.size()) + 1);
}

/// Adds the row of draft number `number` (0: the first), beside which the module's own state stands.
void MtpModule::add_draft(Sequence& own, size_t number, int32_t id, const at::Tensor& state, Step& step) const {
  rank_.add_entry(own.table, static_cast<size_t>(own.rows) + number, {&id, 1}, step.message);
  step.message.entries.back().position_shift = static_cast<int32_t>(own.first);
  step.states.push_back(state);
}

/// Runs a step and returns a token behind each of its entries, and the state of its last row.
std::vector<SamplerOutput> MtpModule::draw(Step& step, std::vector<at::Tensor>& last_states) {
  for (StepEntry& entry : step.message.entries) entry.states = true;
  const StepOutput output = rank_.run(step.message, at::cat(step.states));
  last_states.clear();
  for (int64_t row = 0; const StepEntry& entry : step.message.entries) {
    row += static_cast<int64_t>(entry.tokens.size());
    last_states.push_back(output.states.narrow(0, row - 1, 1));
  }
  return sample(step.message, step.inputs, output);
}

/// The first step has the rows of tokens since the last proposal, and further steps have one row for each draft.
Drafts MtpModule::propose(std::span<const DraftRequest> requests, Sequences& sequences) {
  Drafts drafts;
  drafts.tokens.resize(requests.size());
  guarded([&] {
    Step step;
    std::vector<Open> open;
    open.reserve(requests.size());  // inputs refer to the texts
    int64_t left = limits_.step_tokens;
    for (size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& request = requests[i];
      const auto found = sequences.find(request.slot);
      const auto length = static_cast<int64_t>(request.tokens.size());
      if (found == sequences.end() || count_of(request) < 1) continue;
      Sequence& own = found->second;
      const int64_t rows = own.waiting();
      if (own.end() != length - 1 || rows < 1 || rows > left) continue;
      if (!rank_.grow(own.table, own.rows + rows + count_of(request) - 1)) {
        restart(own);
        continue;
      }
      if (!add_rows(own, request.tokens, rows, step)) continue;
      drafts.read_texts = drafts.read_texts || static_cast<size_t>(rows) > usually_behind;
      left -= rows;
      open.push_back({i, &own, {request.tokens.begin(), request.tokens.end()}});
      rank_.want_token(request, open.back().text, step.message, step.inputs);
    }
    std::vector<at::Tensor> last_states;
    while (!step.message.entries.empty()) {
      const std::vector<SamplerOutput> sampled = draw(step, last_states);
      step = {};
      for (size_t i = 0; i < open.size(); ++i) {
        const int32_t id = sampled.at(i).tokens.at(0).id;
        const DraftRequest& request = requests[open[i].request];
        std::vector<int32_t>& own = drafts.tokens[open[i].request];
        own.push_back(id);
        Sequence& sequence = *open[i].sequence;
        if (static_cast<int64_t>(own.size()) == count_of(request) || is_end(*request.sampling, id)) {
          open[i].sequence = nullptr;
          continue;
        }
        open[i].text.push_back(id);
        add_draft(sequence, own.size() - 1, id, last_states[i], step);
        rank_.want_token(request, open[i].text, step.message, step.inputs);
      }
      std::erase_if(open, [](const Open& one) { return !one.sequence; });
    }
  });
  if (failed_)
    for (std::vector<int32_t>& own : drafts.tokens) own.clear();  // also those of a step before the failure
  return drafts;
}

}  // namespace pm::engine
