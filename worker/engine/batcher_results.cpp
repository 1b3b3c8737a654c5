// See batcher.h: what becomes of the tokens that a step gives.
#include <algorithm>
#include <stdexcept>

#include "worker/engine/batcher.h"

namespace pm::engine {

void Batcher::apply(const std::vector<Chosen>& chosen, Time now, Outbox& outbox) {
  if (planned_.empty()) throw std::logic_error("results of a step that was not planned");
  const std::vector<Planned> step = std::move(planned_.front());
  planned_.pop_front();
  size_t next = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const Planned& planned = step[i];
    Work& work = *planned.work;
    --work.under_way;
    if (work.gone || !planned.chooses) {
      next += planned.chooses && !planned.given;
      continue;
    }
    Branch* branch = find(work, planned.branch);
    if (planned.given) {
      if (work.branches.size() == 1 && work.generated(*branch) == 0) fork(work, std::vector<Token>(work.ended.size(), Token{planned.token, 0, {}}), now, outbox);
      else give(work, *branch, {planned.token, 0, {}}, now, outbox);
      continue;
    }
    const Chosen& result = chosen.at(next++);
    if (work.search) {
      std::vector<Candidate> candidates = result.candidates;
      // the other beams' rows come next: a search chooses over all of them
      for (; i + 1 < step.size() && step[i + 1].work == &work; ++i) {
        --work.under_way;
        const auto& more = chosen.at(next++).candidates;
        candidates.insert(candidates.end(), more.begin(), more.end());
      }
      advance(work, std::move(candidates), now, outbox);
    } else if (work.branches.size() == 1 && work.generated(*branch) == 0) {
      std::vector<Token> tokens = result.tokens;
      tokens.resize(work.ended.size(), tokens.front());   // the best is the best for every sequence
      fork(work, tokens, now, outbox);
    } else {
      give(work, *branch, result.tokens.at(0), now, outbox);
    }
  }
  std::erase_if(running_, [&](std::unique_ptr<Work>& work) {
    if (!work->done()) return false;
    retire(std::move(work));
    ++statistics_.finished;
    return true;
  });
  std::erase_if(gone_, [](const std::unique_ptr<Work>& work) { return work->under_way == 0; });
}

Branch* Batcher::find(Work& work, int64_t number) {
  const auto found = std::find_if(work.branches.begin(), work.branches.end(), [&](const Branch& branch) { return branch.number == number; });
  if (found == work.branches.end()) throw std::logic_error("request " + work.request.id + " has no sequence " + std::to_string(number));
  return &*found;
}

/// Blocks that are full now can serve others that begin with the same tokens.
void Batcher::publish(const Work& work, Branch& branch) {
  if (work.reads_source()) return;   // what the keys are depends on the source too
  for (; (branch.published + 1) * kv_block_tokens <= branch.computed; ++branch.published) {
    const auto begin = static_cast<size_t>(branch.published * kv_block_tokens);
    branch.place = pool_.publish(branch.blocks[static_cast<size_t>(branch.published)], branch.place, std::span(branch.tokens).subspan(begin, kv_block_tokens));
  }
}

/// The first token of each sequence: they share what the prompt left, each in a slot of its own.
void Batcher::fork(Work& work, const std::vector<Token>& tokens, Time now, Outbox& outbox) {
  for (size_t i = 1; i < tokens.size(); ++i) {
    Branch branch = work.branches.front();
    branch.number = static_cast<int64_t>(i);
    branch.slot = work.spare_slots.back();
    work.spare_slots.pop_back();
    branch.anew = true;
    branch.told = 0;
    for (int32_t block : branch.blocks) pool_.retain(block);
    work.branches.push_back(std::move(branch));
  }
  for (size_t i = 0; i < tokens.size(); ++i) give(work, *find(work, static_cast<int64_t>(i)), tokens[i], now, outbox);
}

void Batcher::give(Work& work, Branch& branch, Token token, Time now, Outbox& outbox) {
  const Sampling& sampling = work.request.sampling;
  branch.tokens.push_back(token.id);
  ++statistics_.generation_tokens;
  Event event{.sequence = branch.number, .tokens = {}};
  if (std::find(sampling.eos.begin(), sampling.eos.end(), token.id) != sampling.eos.end()) event.finish = Finish::Stop;
  else if (work.generated(branch) == work.request.max_new_tokens || late(work, now)) event.finish = Finish::Length;
  event.tokens.push_back(std::move(token));
  const bool ends = event.finish != Finish::None;
  send(work, std::move(event), outbox);
  if (!ends) return;
  drop_branch(work, branch);
  const int64_t number = branch.number;
  if (work.branches.size() > 1) std::erase_if(work.branches, [&](const Branch& one) { return one.number == number; });
}

void Batcher::advance(Work& work, std::vector<Candidate> candidates, Time now, Outbox& outbox) {
  statistics_.generation_tokens += work.request.search.num_beams;
  const std::vector<BeamSearch::Next> next = work.search->advance(std::move(candidates), late(work, now));
  if (!next.empty()) return reorder(work, next);
  int64_t number = 0;
  for (BeamSearch::Found& found : work.search->found()) {
    Event event{.sequence = number++, .tokens = {}, .finish = found.ended ? Finish::Stop : Finish::Length};
    event.score = found.score;
    for (int32_t id : found.tokens) event.tokens.push_back({id, 0, {}});
    send(work, std::move(event), outbox);
  }
}

/// Every beam goes on from its parent's table; the first child of a parent keeps its slot.
void Batcher::reorder(Work& work, const std::vector<BeamSearch::Next>& next) {
  std::vector<Branch> beams;
  for (const BeamSearch::Next& one : next) {
    Branch& parent = work.branches[std::min(static_cast<size_t>(one.beam), work.branches.size() - 1)];
    Branch& beam = beams.emplace_back(parent);
    parent.slot = -1;
    beam.number = static_cast<int64_t>(beams.size()) - 1;
    beam.tokens.push_back(one.id);
    for (int32_t block : beam.blocks) pool_.retain(block);
  }
  for (Branch& parent : work.branches) {
    pool_.release(parent.blocks);
    if (parent.slot >= 0) work.spare_slots.push_back(parent.slot);
  }
  for (Branch& beam : beams) {
    if (beam.slot >= 0) continue;
    beam.slot = work.spare_slots.back();
    work.spare_slots.pop_back();
    beam.anew = true;
    beam.told = 0;
  }
  work.branches = std::move(beams);
}

bool Batcher::late(const Work& work, Time now) const {
  return work.request.max_time > 0 && std::chrono::duration<double>(now - work.submitted).count() > work.request.max_time;
}

void Batcher::send(Work& work, Event event, Outbox& outbox) {
  if (!work.announced && work.cached >= 0) {
    work.announced = true;
    event.queued_seconds = std::chrono::duration<double>(work.admitted - work.submitted).count();
    event.cached_tokens = work.cached;
    if (!event.tokens.empty()) statistics_.prompt_tokens += static_cast<int64_t>(work.reads_source() ? work.source.size() : work.request.prompt.size());
  }
  if (event.finish != Finish::None) work.ended[static_cast<size_t>(event.sequence)] = true;
  if (work.on_event) outbox.emplace_back(work.on_event, std::move(event));
}

void Batcher::end_all(Work& work, Finish finish, const std::string& reason, Outbox& outbox) {
  for (size_t i = 0; i < work.ended.size(); ++i) {
    if (!work.ended[i]) send(work, {.sequence = static_cast<int64_t>(i), .tokens = {}, .finish = finish, .reason = reason}, outbox);
  }
}

void Batcher::cancel(const std::string& id) {
  for (auto& work : waiting_) if (work->request.id == id) work->cancelled = true;
  for (auto& work : running_) if (work->request.id == id) work->cancelled = true;
}

void Batcher::cancel_all() {
  for (auto& work : waiting_) work->cancelled = true;
  for (auto& work : running_) work->cancelled = true;
}

void Batcher::drop_cancelled(Outbox& outbox) {
  const auto drop = [&](auto& works) {
    std::erase_if(works, [&](std::unique_ptr<Work>& work) {
      if (!work->cancelled) return false;
      end_all(*work, Finish::Cancelled, {}, outbox);
      retire(std::move(work));
      return true;
    });
  };
  drop(waiting_);
  drop(running_);
}

void Batcher::fail_all(const std::string& reason, Outbox& outbox) {
  const auto fail = [&](Work& work) {
    end_all(work, Finish::Failed, reason, outbox);
    work.on_event = nullptr;
    ++statistics_.failed;
  };
  for (auto& work : waiting_) fail(*work);
  for (auto& work : running_) fail(*work);
  waiting_.clear();
}

std::vector<int32_t> Batcher::take_freed(bool all) {
  if (all) {
    for (const auto& work : running_) {
      for (const Branch& branch : work->branches) if (branch.told > 0) freed_.push_back(branch.slot);
    }
  }
  return std::exchange(freed_, {});
}

Statistics Batcher::statistics() const {
  Statistics result = statistics_;
  result.running = running();
  result.waiting = waiting();
  result.kv_blocks = pool_.size();
  result.kv_blocks_used = pool_.size() - pool_.available();
  return result;
}

}  // namespace pm::engine
