// SPDX-License-Identifier: Apache-2.0
// Decides which sequences take part in the next step (admission, KV block allocation, preemption) and applies the
// sampled tokens. It has no thread, no clock and no ranks: its decisions depend only on its arguments.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/kv_block.h"
#include "worker/engine/ranks/rank.h"
#include "worker/engine/scheduling/sequence_group.h"
#include "worker/engine/speculation/draft_cost.h"
#include "worker/engine/speculation/drafter.h"

namespace pm::engine {

/// Capacity and properties of the model and of the engine that bound scheduling.
struct Limits {
  int64_t vocabulary = 0, positions = 0;  ///< of the model
  int64_t kv_blocks = 0;
  int64_t max_concurrency = 64, max_queue = 256;  ///< running sequences, waiting requests
  int64_t step_tokens = pm::step_tokens;          ///< token budget of one step; longer prompts are prefilled in chunks
  /// True if the rows of a forward pass are independent; false where images are compared with texts.
  bool split_forward = true;
  int64_t least_states = 0;                  ///< of a row of a forward pass, however short; it costs as many tokens
  bool shows_attentions = true;              ///< false: a forward pass that asks for attentions is refused
  int32_t forced_bos = -1, forced_eos = -1;  ///< Hugging Face's forced_bos_token_id and forced_eos_token_id; -1: none
  /// Step messages in flight over which the sequences are spread: the number of pipeline stages.
  int64_t pipeline_batches = 1;
  int64_t micro_batches = 1;     ///< micro-batches into which a forward pass is split for the pipeline
  bool device_sampling = false;  ///< true if the device can sample tokens
  /// Encoder-decoder: the answer begins with this id; -1: no encoder. The prompt goes to the encoder, or behind this id
  /// where the encoder reads images or audio.
  int32_t decoder_start = -1;
  /// LongRoPE: the most tokens of a sequence whose keys are rotated by the short factors; 0: there is no such limit. A
  /// sequence that grows beyond it is computed again.
  int64_t short_rope_tokens = 0;
  /// Layers keep a state of each sequence that no prefix of its tokens has: nothing is computed from shared blocks, and
  /// sequences that fork copy their states.
  bool recurrent = false;
  /// Images among the tokens of a prompt: the numbers of a row, and what an image costs in a forward pass; 0: there are
  /// none.
  int64_t image_width = 0, image_tokens = 0;
  bool bidirectional_images = false;  ///< within an image attention is bidirectional, so that no chunk ends inside one
  bool source_inputs = false;         ///< the encoder reads images or audio: Request::source
  /// There is no KV cache: each step runs the model on the whole of its sequences, and `appended` behind each: a token,
  /// or -1 for a target. Nothing is preempted then.
  bool recomputes = false;
  std::optional<int32_t> appended;
  bool overlap = false;  ///< a token behind the prompt has a second row then, but for the last (policy::Recompute)
  int64_t memory = 0;    ///< rows before the tokens of each sequence then, which count as tokens of a step
  /// Encoder-decoder: vocabulary and positions of the encoder; 0: those of the decoder.
  int64_t source_vocabulary = 0, source_positions = 0;
  /// Speculative decoding; nullopt: none. Without effect where `recurrent` or `recomputes`.
  std::optional<Speculation> speculation;
};

/// Events that are delivered after the lock is released.
using Outbox = std::vector<std::pair<Listener, Event>>;

/// Owns the sequence groups of one data-parallel rank and its KV block pool. Not thread-safe.
class Batcher {
 public:
  explicit Batcher(const Limits&);

  /// Validates a request and returns its sequence group. `source_tokens` is the number of states that an encoder of
  /// images or audio makes of the request's source; 0 if there is none. Throws Error{InvalidRequest}.
  std::unique_ptr<SequenceGroup> make(Request, std::function<void(const Event&)> on_event, Time now,
                                      int64_t source_tokens = 0) const;
  /// Appends a sequence group to the waiting queue.
  void enqueue(std::unique_ptr<SequenceGroup> group) { waiting_.push_back(std::move(group)); }

  /// Plans the next step: one row for every decoding sequence, then prompts in order of admission, in chunks, up to the
  /// token budget. If KV blocks run out, the request that was admitted last is preempted: it releases its blocks and
  /// waits again. `sampling_inputs` receives what rank 0 needs to sample from gathered logits. Steps may be planned
  /// before earlier results arrive; the ranks run them in this order.
  StepMessage plan(Time now, std::vector<SamplingInput>& sampling_inputs, Outbox&);
  /// Learns how long the oldest planned step with entries took whose results have not been applied, from which it
  /// estimates whether drafts pay.
  void observe(const StepMessage&, double seconds);
  /// Applies the results of the oldest planned step with entries whose results have not been applied.
  /// `prompt_tokens` are those that its entries have scored, and `states` is StepOutput::states.
  void apply(const std::vector<SamplerOutput>&, Time now, Outbox&, std::vector<PromptToken> prompt_tokens = {},
             const at::Tensor& states = {});

  /// Marks the requests with this id; drop_cancelled() ends them.
  void cancel(const std::string& id);
  void cancel_all();
  void drop_cancelled(Outbox&);
  /// Ends all open requests with Finish::Failed. Their state stays until the steps in flight are applied or dropped.
  void fail_all(const std::string& reason, Outbox&);

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const;
  bool idle() const { return waiting_.empty() && running_.empty(); }
  /// Returns the slots whose block tables the ranks can drop; with `all`, also those of running sequences.
  std::vector<int32_t> take_freed_slots(bool all = false);
  /// Returns counters of requests, tokens and blocks; the scheduler adds steps and forward requests.
  Statistics statistics() const;
  /// Prompt tokens in the step that plan() returned last.
  int64_t planned_prompt_tokens() const { return planned_prompt_tokens_; }

 private:
  struct Planned {
    SequenceGroup* group = nullptr;
    int64_t sequence = 0;  ///< Sequence::number
    int64_t tokens = 0;
    int32_t drafts = 0;    ///< tokens behind them that are drafts
    double row_price = 0;  ///< DraftPrice::row, when they were drafted
    int32_t slot = -1;
    int64_t first = 0, states = 0;  ///< position of the first token; how many rows have their states returned
    size_t scored = 0;              ///< tokens of the prompt
    bool comparable = true;         ///< the time of the step says what drafts cost
    /// The entry produces a token; `forced`: this token, whatever the scores are.
    bool samples = false, forced = false;
    int32_t token = -1;
  };
  struct Plan;  ///< the step under construction
  /// A sequence that takes its next token in the step.
  struct Turn {
    SequenceGroup* group = nullptr;
    Sequence* sequence = nullptr;
  };

  void check_limits(const SequenceGroup&) const;
  void admit(Time now, Outbox&);
  bool admit(SequenceGroup&, Time now);
  bool allocate_blocks(SequenceGroup&);
  void plan_next_tokens(Plan&);
  void plan_prompts(Plan&);
  void plan_whole_sequences(Plan&);
  enum class Allocation { Done, Preempted, Later };
  Allocation allocate_next_blocks(SequenceGroup&, std::vector<int32_t>& copies);
  void preempt_last();
  bool has_outgrown(const SequenceGroup&, const Sequence&) const;
  bool takes_token(const SequenceGroup& group, const Sequence& sequence) const {
    return group.ready(sequence) && !has_outgrown(group, sequence);
  }
  void restart_outgrown();
  int64_t whole_rows(const SequenceGroup&, const Sequence&) const;
  StepEntry make_whole_entry(const SequenceGroup&, Sequence&) const;
  StepEntry make_entry(SequenceGroup&, Sequence&, int64_t tokens) const;
  void add(Plan&, SequenceGroup&, Sequence&, int64_t tokens, std::vector<int32_t> drafts = {});
  void add_source(Plan&, SequenceGroup&, Sequence&);
  void add_prompt_scores(SequenceGroup&, const Sequence&, StepEntry&, Planned&) const;
  void add_sampling(Plan&, SequenceGroup&, Sequence&, StepEntry&, Planned&);
  std::vector<std::vector<int32_t>> draft(Plan&, std::span<const Turn>, int64_t sequences, int64_t spare_blocks);
  int64_t most_drafts(const SequenceGroup&, const Sequence&) const;
  int64_t draft_rows(const Plan&, int64_t sequences) const;
  void note_drafts(const Plan&);
  void allocate_draft_blocks(Sequence&, std::vector<int32_t>& drafts, int64_t& spare_blocks);
  void append_tokens(SequenceGroup&, const Planned&, std::vector<Token>, Time now, Outbox&);
  void return_draft_blocks(Sequence&);
  bool would_draft() const;
  bool shows_states(const SequenceGroup&) const;
  void hand_on_states(const std::vector<Planned>&, const at::Tensor& states);
  static std::vector<int32_t> prefix_ids(const SequenceGroup&, const Sequence&, int64_t first, int64_t count);
  void cache_full_blocks(const SequenceGroup&, Sequence&);
  Sequence* find_sequence(SequenceGroup&, int64_t number);
  void append_token(SequenceGroup&, Sequence&, Token, Time now, Outbox&);
  void fork(SequenceGroup&, const std::vector<Token>&, Time now, Outbox&);
  bool fork_constraints(SequenceGroup&, Outbox&);
  std::optional<bool> append_to_constraint(SequenceGroup&, int64_t number, int32_t id, bool is_end, Outbox&);
  void fail_constraint(SequenceGroup&, const std::string& reason, Outbox&);
  void advance(SequenceGroup&, std::vector<Candidate>, Time now, Outbox&);
  void reorder(SequenceGroup&, const std::vector<BeamSearch::Next>&);
  bool continue_constraints(SequenceGroup&, const std::vector<BeamSearch::Next>&, Outbox&);
  void emit(SequenceGroup&, Event, Outbox&);
  void end_all(SequenceGroup&, Finish, const std::string& reason, Outbox&);
  void give_slot(SequenceGroup&, Sequence&, int32_t parent);
  void release_sequence(SequenceGroup&, Sequence&);
  void free_resources(SequenceGroup&);
  void retire(std::unique_ptr<SequenceGroup>);
  bool timed_out(const SequenceGroup&, Time now) const;

  const Limits limits_;
  BlockPool pool_;
  std::deque<std::unique_ptr<SequenceGroup>> waiting_;
  std::vector<std::unique_ptr<SequenceGroup>> running_;  ///< in order of admission
  std::vector<std::unique_ptr<SequenceGroup>> retired_;  ///< ended, but still part of steps in flight
  std::vector<int32_t> free_slots_, freed_slots_;
  std::vector<int32_t> state_copies_;         ///< for the next step
  std::deque<std::vector<Planned>> planned_;  ///< one element for each step in flight
  int64_t planned_prompt_tokens_ = 0;
  std::unique_ptr<Drafter> drafter_;  ///< nullptr: no speculation
  std::vector<std::pair<int32_t, int32_t>>
      forked_slots_;  ///< of a parent and its child, which the drafter does not know
  DraftCost draft_cost_;
  DraftTrials draft_trials_;
  double draft_rate_ = DraftLength::optimistic_rate;  ///< of sequences that drafted lately
  Statistics statistics_;
};

}  // namespace pm::engine
