// See batcher.h: admission and what goes into a step. What comes out of it: batcher_results.cpp.
#include "worker/engine/batcher.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/engine/sampler.h"

namespace pm::engine {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::Request, "InvalidRequest", message); }

std::string text(int64_t number) { return std::to_string(number); }

/// Whether the best score is the choice, so that no rank needs to see all of them.
bool takes_best(const Work& work) {
  const Sampling& sampling = work.request.sampling;
  return !work.search && !sampling.do_sample && !sampling.edits() && work.request.logprobs < 0;
}

void refuse_parameters(const Request& request) {
  const Search& search = request.search;
  if (request.prompt.empty()) refuse("the prompt has no tokens; at least one is needed");
  if (request.max_new_tokens < 1) refuse("max_new_tokens is " + text(request.max_new_tokens) + "; at least 1 is needed");
  if (search.num_beams < 1) refuse("num_beams is " + text(search.num_beams) + "; at least 1 is needed");
  if (search.num_return_sequences < 1) refuse("num_return_sequences is " + text(search.num_return_sequences) + "; at least 1 is needed");
  if (search.num_beams > 1 && search.num_return_sequences > search.num_beams) {
    refuse("num_return_sequences is " + text(search.num_return_sequences) + ", but num_beams is " + text(search.num_beams) + "; ask for at most as many sequences as beams");
  }
  if (search.num_beams > 1 && request.logprobs >= 0) refuse("log-probabilities are not given with num_beams " + text(search.num_beams) + "; ask for one or the other");
}

}  // namespace

Batcher::Batcher(const Limits& limits) : limits_(limits), pool_(limits.kv_blocks) {
  for (int64_t i = limits_.max_concurrency; i-- > 0;) free_slots_.push_back(static_cast<int32_t>(i));
}

std::unique_ptr<Work> Batcher::make(Request request, std::function<void(const Event&)> on_event, Time now) const {
  refuse_parameters(request);
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= limits_.vocabulary) refuse("token id " + text(id) + " is outside the vocabulary of " + text(limits_.vocabulary));
  }
  auto work = std::make_unique<Work>();
  if (limits_.decoder_start >= 0) {
    work->source = std::move(request.prompt);
    request.prompt = {limits_.decoder_start};
  }
  Sampling& sampling = request.sampling;
  sampling.eos.clear();
  if (!request.ignore_eos) sampling.eos.assign(request.eos.begin(), request.eos.end());
  for (auto [name, id, usual] : {std::tuple{"forced_bos_token_id", &sampling.forced_bos, limits_.forced_bos}, {"forced_eos_token_id", &sampling.forced_eos, limits_.forced_eos}}) {
    if (*id < 0) *id = usual;
    if (*id >= limits_.vocabulary) refuse(std::string(name) + " is " + text(*id) + ", outside the vocabulary of " + text(limits_.vocabulary));
  }
  sampling.max_new_tokens = request.max_new_tokens;
  if (request.search.num_beams > 1) work->search.emplace(request.search, sampling.eos, request.max_new_tokens);
  work->branches.resize(1);
  work->branches[0].tokens = request.prompt;
  work->ended.resize(static_cast<size_t>(request.search.num_return_sequences));
  work->request = std::move(request);
  work->on_event = std::make_shared<const std::function<void(const Event&)>>(std::move(on_event));
  work->submitted = now;
  refuse_what_cannot_run(*work);
  return work;
}

void Batcher::refuse_what_cannot_run(const Work& work) const {
  const auto read = static_cast<int64_t>(work.source.size()), tokens = work.prompt() + work.request.max_new_tokens;
  const auto too_long = [&](const std::string& what, int64_t asked, int64_t room) {
    refuse(what + " is " + text(asked) + "; the longest sequence served is " + text(room));
  };
  const int64_t room = std::min(limits_.positions, limits_.kv_blocks * kv_block_tokens);
  if (read > limits_.positions) too_long("input of " + text(read) + " tokens", read, limits_.positions);
  if (tokens > room) too_long("prompt of " + text(work.prompt()) + " tokens plus " + text(work.request.max_new_tokens) + " new ones", tokens, room);
  if (work.width() > limits_.max_concurrency) {
    refuse(text(work.width()) + " sequences side by side are asked for; at most " + text(limits_.max_concurrency) + " run here");
  }
  const int64_t blocks = most_blocks(work.prompt(), work.request.max_new_tokens, read, work.width());
  if (blocks > limits_.kv_blocks) {
    refuse("input of " + text(read > 0 ? read : work.prompt()) + " tokens and " + text(work.width()) + " answer(s) of " + text(work.request.max_new_tokens) + " need " + text(blocks) +
           " KV blocks of " + text(kv_block_tokens) + " tokens; there are " + text(limits_.kv_blocks));
  }
}

int64_t Batcher::running() const { return static_cast<int64_t>(running_.size()); }

/// Moves waiting requests into slots, first come first served, while slots and blocks for what they have so far are free.
void Batcher::admit(Time now, Outbox& outbox) {
  std::erase_if(waiting_, [&](const std::unique_ptr<Work>& work) {
    if (work->cached >= 0 || !late(*work, now)) return false;   // what has run already ends with its next token, and gives what it has found
    end_all(*work, Finish::Length, {}, outbox);
    ++statistics_.finished;
    return true;
  });
  while (!waiting_.empty() && admit(*waiting_.front(), now)) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool Batcher::admit(Work& work, Time now) {
  if (static_cast<int64_t>(free_slots_.size()) < work.width() || !hold_blocks(work)) return false;
  for (int64_t i = 0; i < work.width(); ++i) {
    work.spare_slots.push_back(free_slots_.back());
    free_slots_.pop_back();
  }
  for (Branch& branch : work.branches) {
    branch.slot = work.spare_slots.back();
    work.spare_slots.pop_back();
  }
  if (work.cached >= 0) return true;   // it was here before
  work.admitted = now;
  work.cached = work.branches[0].computed;
  if (work.reads_source()) return true;
  statistics_.prefix_tokens += work.prompt();
  statistics_.prefix_hit_tokens += work.cached;
  return true;
}

/// Blocks for all tokens that the branches have. Further branches share the first one's whole blocks of the prompt. Those that run already are
/// left one block each, else the next step would take these away again.
bool Batcher::hold_blocks(Work& work) {
  Branch& first = work.branches.front();
  BlockPool::Prefix prefix;
  if (!work.reads_source()) prefix = pool_.find(first.tokens);
  const int64_t common = work.branches.size() > 1 ? work.prompt() / kv_block_tokens : 0, begun = static_cast<int64_t>(prefix.blocks.size());
  int64_t need = blocks_for(static_cast<int64_t>(work.source.size())) + blocks_for(first.length()) - begun, spare = 0;
  for (size_t i = 1; i < work.branches.size(); ++i) need += blocks_for(work.branches[i].length()) - common;
  for (const auto& other : running_) spare += static_cast<int64_t>(other->branches.size());
  if (need + spare > pool_.available()) {
    pool_.release(prefix.blocks);
    return false;
  }
  const auto extend = [&](std::vector<int32_t>& table, int64_t tokens) {
    while (static_cast<int64_t>(table.size()) < blocks_for(tokens)) table.push_back(*pool_.take());
  };
  first.blocks = std::move(prefix.blocks);
  first.published = begun;
  first.place = prefix.end;
  first.computed = begun * kv_block_tokens;
  extend(first.blocks, first.length());
  for (size_t i = 1; i < work.branches.size(); ++i) {
    Branch& branch = work.branches[i];
    branch.blocks.assign(first.blocks.begin(), first.blocks.begin() + common);
    for (int32_t block : branch.blocks) pool_.retain(block);
    branch.computed = branch.after = common * kv_block_tokens;
    extend(branch.blocks, branch.length());
  }
  extend(work.source_blocks, static_cast<int64_t>(work.source.size()));
  return true;
}

/// A step in the making.
struct Batcher::Plan {
  StepMessage message;
  std::vector<Planned> planned;
  std::vector<Choosing>& choosing;
  int64_t room;
};

StepMessage Batcher::plan(Time now, std::vector<Choosing>& choosing, Outbox& outbox) {
  admit(now, outbox);
  planned_prompt_tokens_ = 0;
  Plan plan{{}, {}, choosing, limits_.step_tokens};
  plan_next_tokens(plan);
  plan_prompts(plan);
  plan.message.freed = take_freed();
  if (!plan.planned.empty()) planned_.push_back(std::move(plan.planned));
  return std::move(plan.message);
}

/// Of a pipeline's sequences each message takes its part, so that every stage has one to work on.
void Batcher::plan_next_tokens(Plan& plan) {
  int64_t all = 0, taken = 0;
  for (const auto& work : running_) all += static_cast<int64_t>(work->branches.size());
  for (size_t i = 0; i < running_.size() && taken * limits_.groups < all; ++i) {
    Work& work = *running_[i];
    const auto rows = static_cast<int64_t>(std::count_if(work.branches.begin(), work.branches.end(), [&](const Branch& branch) { return work.ready(branch); }));
    if (rows == 0 || rows > plan.room || (work.search && !work.all_ready())) continue;
    if (secure_next(work, plan.message.copies) != Secured::Yes) return;   // it gave its own blocks back, and nobody comes after it; or blocks come back later
    taken += rows;
    for (Branch& branch : work.branches) {
      if (work.ready(branch)) add(plan, work, branch, 1);
    }
  }
}

/// A block of its own for the next token of each branch that is ready. The request that was admitted last pays for it: when that is this one it gives back all
/// that it has, when it is under way there are blocks later.
Batcher::Secured Batcher::secure_next(Work& work, std::vector<int32_t>& copies) {
  const size_t before = copies.size();
  for (Branch& branch : work.branches) {
    if (!work.ready(branch)) continue;
    const auto index = static_cast<size_t>(branch.computed / kv_block_tokens);
    const bool grows = index == branch.blocks.size();
    if (!grows && !pool_.shared(branch.blocks[index])) continue;
    std::optional<int32_t> block;
    while (!(block = pool_.take())) {
      if (running_.back()->under_way > 0) return Secured::Later;
      const bool own = running_.back().get() == &work;
      preempt_last();
      if (!own) continue;
      copies.resize(before);
      return Secured::GaveBack;
    }
    if (grows) {
      branch.blocks.push_back(*block);
      continue;
    }
    copies.insert(copies.end(), {branch.blocks[index], *block});
    pool_.release(branch.blocks[index]);
    branch.blocks[index] = *block;
    branch.anew = true;
  }
  return Secured::Yes;
}

void Batcher::preempt_last() {
  std::unique_ptr<Work> work = std::move(running_.back());
  running_.pop_back();
  ++statistics_.preempted;
  let_go(*work);
  waiting_.push_front(std::move(work));
}

/// It has ended. What is under way of it still refers to it.
void Batcher::retire(std::unique_ptr<Work> work) {
  let_go(*work);
  work->gone = true;
  if (work->under_way > 0) gone_.push_back(std::move(work));
}

/// Blocks and slots go back; tokens stay.
void Batcher::let_go(Work& work) {
  for (Branch& branch : work.branches) {
    drop_branch(work, branch);
    branch.computed = branch.after = branch.told = branch.published = branch.place = 0;
    branch.anew = true;
  }
  pool_.release(work.source_blocks);
  work.source_blocks.clear();
  work.source_read = false;
  free_slots_.insert(free_slots_.end(), work.spare_slots.begin(), work.spare_slots.end());
  work.spare_slots.clear();
}

void Batcher::drop_branch(Work& work, Branch& branch) {
  pool_.release(branch.blocks);
  branch.blocks.clear();
  if (branch.slot < 0) return;
  if (branch.told > 0) freed_.push_back(branch.slot);
  work.spare_slots.push_back(branch.slot);
  branch.slot = -1;
}

void Batcher::plan_prompts(Plan& plan) {
  for (auto& work : running_) {
    bool read = work->source.empty() || work->source_read;
    for (Branch& branch : work->branches) {
      if (plan.room <= 0) return;
      if (work->ready(branch) || branch.after > work->branches.front().computed) continue;
      // beams choose together, in the step that all of them have one token left for
      const int64_t most = work->search && work->branches.size() > 1 ? branch.left() - 1 : branch.left();
      // what an encoder reads is never split: one that is longer than a step runs beside nothing but next tokens
      const auto source = read ? 0 : static_cast<int64_t>(work->source.size());
      if (source > 0 && source >= plan.room && planned_prompt_tokens_ > 0) return;
      const int64_t count = std::min(std::max<int64_t>(1, plan.room - source), most);
      if (count <= 0) continue;
      add(plan, *work, branch, count);
      plan.room -= source;
      planned_prompt_tokens_ += source + count;
      read = true;
    }
  }
}

void Batcher::add(Plan& plan, Work& work, Branch& branch, int64_t tokens) {
  StepEntry entry;
  entry.slot = branch.slot;
  entry.context = branch.computed;
  const auto from = branch.tokens.begin() + static_cast<std::ptrdiff_t>(branch.computed);
  entry.tokens.assign(from, from + static_cast<std::ptrdiff_t>(tokens));
  if (branch.anew) {
    entry.anew = true;
    entry.source_blocks = work.source_blocks;
    entry.source_tokens = static_cast<int64_t>(work.source.size());
    branch.anew = false;
    branch.told = 0;
  }
  if (work.reads_source() && !work.source_read) entry.source = work.source, work.source_read = true;
  entry.blocks.assign(branch.blocks.begin() + static_cast<std::ptrdiff_t>(branch.told), branch.blocks.end());
  branch.told = static_cast<int64_t>(branch.blocks.size());
  plan.room -= tokens;
  Planned planned{.work = &work, .branch = branch.number, .tokens = tokens};
  if (branch.computed + tokens == branch.length()) add_choice(plan, work, branch, entry, planned);
  branch.computed += tokens;
  publish(work, branch);
  ++work.under_way;
  plan.planned.push_back(planned);
  plan.message.entries.push_back(std::move(entry));
}

void Batcher::add_choice(Plan& plan, Work& work, Branch& branch, StepEntry& entry, Planned& planned) {
  const Request& request = work.request;
  planned.chooses = true;
  const int32_t forced = request.sampling.forced(branch.length(), work.generated(branch));
  if (forced >= 0 && !work.search && request.logprobs < 0) {
    planned.given = true;
    planned.token = forced;
    return;
  }
  // sequences that are drawn part with their first token
  const bool parts = !work.search && work.branches.size() == 1 && work.generated(branch) == 0;
  const int64_t draws = parts ? request.search.num_return_sequences : 1;
  const History history{branch.tokens, request.prompt.size()};
  if (takes_best(work)) {
    entry.want = Want::Best;
    return;
  }
  if (limits_.draws && !work.search && request.logprobs < 0 && drawn_on_device(request.sampling, limits_.vocabulary)) {
    const Sampling& s = request.sampling;
    entry.want = Want::Drawn;
    entry.drawing = {{s.temperature, s.top_p, s.min_p, s.top_k, s.seed, static_cast<uint64_t>(branch.number), static_cast<uint64_t>(branch.length()), s.do_sample}, draws,
                     edits(s, history, static_cast<size_t>(limits_.vocabulary))};
    return;
  }
  entry.want = Want::Scores;
  Choosing choosing{.sampling = &request.sampling, .history = history, .sequence = branch.number, .draws = draws, .logprobs = request.logprobs, .beams = {}};
  if (work.search) {
    const std::vector<float>& scores = work.search->scores();
    choosing.beams = Beams{branch.number, work.branches.size() == 1 ? scores : std::vector<float>{scores[static_cast<size_t>(branch.number)]}, work.search->wanted()};
  }
  plan.choosing.push_back(std::move(choosing));
}

}  // namespace pm::engine
