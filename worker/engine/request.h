// What is asked of the engine and what it answers: the whole surface between worker/server and worker/engine.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/array.h"

namespace pm::engine {

/// How a token is chosen: names, meanings and order of Hugging Face's generation parameters; presence and frequency penalties as OpenAI's.
/// Penalties and bans act on greedy choices too, the rest only when sampling: temperature, top_k, top_p, min_p, typical_p.
struct Sampling {
  bool do_sample = false;          ///< false: greedy
  double temperature = 1;
  int64_t top_k = 0;               ///< 0: off
  double top_p = 1;                ///< 1: off
  uint64_t seed = 0;
  double min_p = 0;                ///< of the best token's probability; 0: off
  double typical_p = 1;            ///< 1: off
  double repetition_penalty = 1;   ///< of tokens of prompt and answer; 1: off
  double presence_penalty = 0, frequency_penalty = 0;   ///< of tokens of the answer; 0: off
  int64_t no_repeat_ngram_size = 0;                     ///< 0: off
  int64_t min_new_tokens = 0;      ///< no end token before
  std::vector<std::vector<int32_t>> bad_words;          ///< sequences that must not come to be; one that is an end token alone is ignored
  std::vector<int32_t> eos;        ///< ids that end the sequence
  int32_t forced_bos = -1, forced_eos = -1;             ///< the second token of a sequence, the last of max_new_tokens; -1: the model's, without one as scored
  int64_t max_new_tokens = 0;      ///< of the request; 0: not known
  bool operator==(const Sampling&) const = default;

  /// The id that has to come as token number `length` (from 0), `generated` of the answer before it; -1: none.
  int32_t forced(int64_t length, int64_t generated) const {
    if (forced_eos >= 0 && generated + 1 == max_new_tokens) return forced_eos;
    return length == 1 ? forced_bos : -1;
  }
  /// Whether scores are changed before the choice; else a greedy choice is the best score.
  bool edits() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || no_repeat_ngram_size > 0 || min_new_tokens > 0 || !bad_words.empty();
  }
};

enum class EarlyStopping : uint8_t { No, Yes, Never };

/// How many continuations of a prompt are sought and given: Hugging Face's names and meanings. num_beams > 1: beam search, or beam sampling
/// when the sampling samples; else num_return_sequences are drawn one by one.
struct Search {
  int64_t num_beams = 1;
  int64_t num_return_sequences = 1;   ///< at most num_beams when these are more than one
  EarlyStopping early_stopping = EarlyStopping::No;
  double length_penalty = 1;          ///< a beam's score is its log-probability / length ^ length_penalty
  bool operator==(const Search&) const = default;
};

struct Request {
  std::string id;                  ///< never empty; in every reply and log line
  std::vector<int32_t> prompt;     ///< at least one token
  int64_t max_new_tokens = 16;
  Sampling sampling;
  std::vector<int64_t> eos;        ///< ids that end the sequence (the model's by default)
  bool ignore_eos = false;
  Search search;
  int64_t logprobs = -1;           ///< k >= 0: each token comes with its log-probability and the k most likely ones; not with beams
  double max_time = 0;             ///< seconds from submit() after which no token is begun, the answer so far ends with Finish::Length; 0: no limit
};

enum class Finish { None, Length, Stop, Cancelled, Failed };

/// A token of an answer. Log-probabilities are those of the model's scores, before anything changed them.
struct Token {
  int32_t id = 0;
  float logprob = 0;                                 ///< 0 when not asked for
  std::vector<std::pair<int32_t, float>> best;       ///< the most likely ones, best first
};

/// One event of a request's stream. Each of its num_return_sequences ends once, with finish != None. Sequences of a beam search come whole, in
/// one event each, best first.
struct Event {
  int64_t sequence = 0;            ///< from 0
  std::vector<Token> tokens;       ///< empty in an event that only ends the sequence
  Finish finish = Finish::None;
  std::string reason;              ///< Failed: RankLost, ...
  double queued_seconds = -1;      ///< on a request's first event: from submit to its first step; negative elsewhere
  int64_t cached_tokens = -1;      ///< on a request's first event: tokens of the prompt whose keys and values were there already; negative elsewhere
  double score = 0;                ///< of a beam, as Hugging Face's sequences_scores
};

/// One pass over given inputs, nothing generated: embeddings, classes, scores. Names and shapes are Hugging Face's, [batch, length] padded or
/// not; tokens whose attention_mask is 0 are left out.
struct ForwardRequest {
  std::string id;                  ///< never empty
  /// input_ids, attention_mask, token_type_ids, position_ids, decoder_input_ids, decoder_attention_mask (int64), pixel_values (float
  /// [images, channels, height, width]). Absent: a mask of ones, types of 0, positions 0, 1, ..., decoder ids shifted from input_ids.
  Arrays inputs;
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;   ///< which of the outputs to bring; empty: those that Hugging Face's model of this class has
  bool by_micro_batch = false;        ///< outputs of each part in which the pass went, as "micro_batches.0.logits", not put together
};

/// How a forward request ended. Finish::Stop: `outputs` are there; places that no token fills are 0.
struct ForwardResult {
  Arrays outputs;
  Finish finish = Finish::Stop;
  std::string reason;              ///< Failed: RankLost, ...
  bool too_large = false;          ///< Failed: the device has no memory for this pass, and the engine goes on
};

struct Statistics {
  int64_t running = 0, waiting = 0, finished = 0, failed = 0, rejected = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0, steps = 0;
  int64_t kv_blocks = 0, kv_blocks_used = 0;
  int64_t preempted = 0;                                ///< requests that gave their blocks back and began again
  int64_t prefix_tokens = 0, prefix_hit_tokens = 0;     ///< prompt tokens looked up, and those found in kept blocks
};

/// A step that was made, for histograms.
struct StepTimes {
  double seconds = 0;                ///< from its message to its tokens
  double gap_seconds = -1;           ///< between the step before and this one while work was open; negative after a rest
  int64_t tokens = 0;                ///< rows: of prompts and of sequences that go on
  int64_t prompt_tokens = 0;
};

/// Thread-safe front of the scheduler on rank 0.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Queues a request. `on_event` is called from the engine's thread, in order, until each sequence has ended; it must not block.
  /// Throws Error{Request, "InvalidRequest"} for ids outside the vocabulary, prompts that are too long and parameters that do not go
  /// together, Error{Request, "QueueFull"} when maxQueue requests wait, Error{RankLost} after a failure.
  virtual void submit(Request, std::function<void(const Event&)> on_event) = 0;
  /// Queues one pass. `on_done` is called once, from the engine's thread; it must not block. Throws Error{Request, "InvalidRequest"} that names
  /// the tensor and what is wrong with it, Error{Request, "QueueFull"}, Error{RankLost}.
  virtual void forward(ForwardRequest, std::function<void(ForwardResult)> on_done) = 0;
  /// Ends a request within a step; its open sequences end with Finish::Cancelled. Unknown ids are ignored.
  virtual void cancel(const std::string& id) = 0;
  virtual Statistics statistics() const = 0;
  /// Fails all open requests with `reason`; later submits throw Error{RankLost}.
  virtual void fail(const std::string& reason) = 0;
  /// Steps done so far, for liveness.
  virtual int64_t steps() const = 0;
};

/// Bytes that a rank holds, allocator figures of our own arenas.
struct RankMemory { int rank = 0; int64_t weights = 0, kv = 0, activations = 0, communicator = 0, runtime = 0; };

}  // namespace pm::engine
