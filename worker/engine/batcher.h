// Which sequences take part in the next step: admission, KV blocks, preemption, and what becomes of the tokens that a step gives. No thread, no
// clock, no ranks: all that it decides follows from what it is told.
#pragma once
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "worker/engine/rank.h"
#include "worker/engine/work.h"

namespace pm::engine {

struct Limits {
  int64_t vocabulary = 0, positions = 0;   ///< of the model
  int64_t kv_blocks = 0;
  int64_t max_concurrency = 64, max_queue = 256;   ///< sequences that run, requests that wait
  int64_t step_tokens = 512;               ///< of one step: longer prompts enter in chunks
  bool split_passes = true;                ///< rows of a pass are independent; false where images are compared with texts
  int32_t forced_bos = -1, forced_eos = -1;   ///< Hugging Face's forced_bos_token_id and forced_eos_token_id; -1: none
  int64_t groups = 1;                      ///< messages under way at once that the sequences are spread over: the stages of a pipeline
  int64_t micro_batches = 1;               ///< parts in which a pass goes through these stages
  bool draws = false;                      ///< whether tokens can be drawn where the scores are
  int32_t decoder_start = -1;              ///< encoder-decoder: a prompt goes to the encoder, the answer begins with this id; -1: no encoder
};

/// Events to be sent once no lock is held.
using Outbox = std::vector<std::pair<Listener, Event>>;

class Batcher {
 public:
  explicit Batcher(const Limits&);

  /// The request as it will run. Throws Error{Request, "InvalidRequest"}.
  std::unique_ptr<Work> make(Request, std::function<void(const Event&)> on_event, Time now) const;
  void enqueue(std::unique_ptr<Work> work) { waiting_.push_back(std::move(work)); }

  /// One row for every sequence that goes on, then prompts in order of admission, in chunks, until the step is full. When blocks are short the
  /// request that was admitted last gives its own back and waits again. `choosing` gets what rank 0 needs to choose from scores.
  /// Messages may be planned before the results of earlier ones have come: the ranks run them in this order.
  StepMessage plan(Time now, std::vector<Choosing>& choosing, Outbox&);
  /// Takes the results of the oldest message with entries that plan() gave and this has not taken.
  void apply(const std::vector<Chosen>&, Time now, Outbox&);

  /// Marks requests of this id; drop_cancelled() ends them.
  void cancel(const std::string& id);
  void cancel_all();
  void drop_cancelled(Outbox&);
  /// Ends all that is open, for whoever listens; what a step still runs stays until it is applied or dropped.
  void fail_all(const std::string& reason, Outbox&);

  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const;
  bool idle() const { return waiting_.empty() && running_.empty(); }
  /// Slots whose tables the ranks have and need not keep; with `all` also those of running sequences.
  std::vector<int32_t> take_freed(bool all = false);
  /// Counters of requests, tokens and blocks; the scheduler adds steps and passes.
  Statistics statistics() const;
  /// Of the message that plan() gave last.
  int64_t planned_prompt_tokens() const { return planned_prompt_tokens_; }

 private:
  struct Planned {
    Work* work = nullptr;
    int64_t branch = 0;                ///< its number
    int64_t tokens = 0;
    bool chooses = false, given = false;   ///< a token comes next; `given`: this one, whatever the scores
    int32_t token = -1;
  };
  struct Plan;                         ///< of the step that is being made

  void refuse_what_cannot_run(const Work&) const;
  void admit(Time now, Outbox&);
  bool admit(Work&, Time now);
  bool hold_blocks(Work&);
  void plan_next_tokens(Plan&);
  void plan_prompts(Plan&);
  enum class Secured { Yes, GaveBack, Later };
  Secured secure_next(Work&, std::vector<int32_t>& copies);
  void preempt_last();
  void add(Plan&, Work&, Branch&, int64_t tokens);
  void add_choice(Plan&, Work&, Branch&, StepEntry&, Planned&);
  void publish(const Work&, Branch&);
  Branch* find(Work&, int64_t number);
  void give(Work&, Branch&, Token, Time now, Outbox&);
  void fork(Work&, const std::vector<Token>&, Time now, Outbox&);
  void advance(Work&, std::vector<Candidate>, Time now, Outbox&);
  void reorder(Work&, const std::vector<BeamSearch::Next>&);
  void send(Work&, Event, Outbox&);
  void end_all(Work&, Finish, const std::string& reason, Outbox&);
  void drop_branch(Work&, Branch&);
  void let_go(Work&);
  void retire(std::unique_ptr<Work>);
  bool late(const Work&, Time now) const;

  const Limits limits_;
  BlockPool pool_;
  std::deque<std::unique_ptr<Work>> waiting_;
  std::vector<std::unique_ptr<Work>> running_;   ///< in order of admission
  std::vector<std::unique_ptr<Work>> gone_;      ///< ended, but not what is under way of them
  std::vector<int32_t> free_slots_, freed_;
  std::deque<std::vector<Planned>> planned_;     ///< of the messages under way
  int64_t planned_prompt_tokens_ = 0;
  Statistics statistics_;
};

}  // namespace pm::engine
