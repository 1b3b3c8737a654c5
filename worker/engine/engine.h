// SPDX-License-Identifier: Apache-2.0
// The interface between the server and the engine: requests, events, results and the Engine that runs them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/engine/adapter.h"
#include "worker/engine/prompt_image.h"
#include "worker/engine/token_constraint.h"

namespace pm::engine {

/// Sampling parameters under Hugging Face's names, with its meanings and its order of application. The presence and
/// frequency penalties and logit_bias follow OpenAI. Penalties and bans also apply to greedy decoding; temperature,
/// top_k, top_p, min_p and typical_p apply only when do_sample is true.
struct SamplingParams {
  bool do_sample = false;  ///< false: greedy decoding
  double temperature = 1;
  int64_t top_k = 0;  ///< 0: off
  double top_p = 1;   ///< 1: off
  uint64_t seed = 0;
  double min_p = 0;               ///< minimum probability relative to that of the most likely token; 0: off
  double typical_p = 1;           ///< 1: off
  double repetition_penalty = 1;  ///< applies to tokens of prompt and answer; 1: off
  double presence_penalty = 0, frequency_penalty = 0;  ///< apply to tokens of the answer; 0: off
  int64_t no_repeat_ngram_size = 0;                    ///< 0: off
  int64_t min_new_tokens = 0;                          ///< end tokens are banned before the answer has this many tokens
  /// Token sequences that are banned; a sequence that is a single end token is ignored.
  std::vector<std::vector<int32_t>> bad_words;
  /// Tokens that are banned everywhere, and those that are banned as the first token of the answer.
  std::vector<int32_t> suppress_tokens, begin_suppress_tokens;
  std::vector<std::pair<int32_t, double>> logit_bias;  ///< added to the logits of these tokens, after the penalties
  std::vector<int32_t> eos;                            ///< end-of-sequence token ids
  int32_t forced_bos = -1, forced_eos = -1;            ///< forced second token of a sequence and forced last token at
                                             ///< max_new_tokens; -1: the model's value, or none if it has none
  int64_t max_new_tokens = 0;  ///< copied from the request; 0: unknown
  bool operator==(const SamplingParams&) const = default;

  /// Returns the token that is forced at position `length` (from 0) when the answer has `generated` tokens so far; -1
  /// if none is forced.
  int32_t forced_token(int64_t length, int64_t generated) const {
    if (forced_eos >= 0 && generated + 1 == max_new_tokens) return forced_eos;
    return length == 1 ? forced_bos : -1;
  }
  /// Returns true if penalties or bans change the scores. Otherwise greedy decoding is a plain argmax.
  bool edits_scores() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || no_repeat_ngram_size > 0 ||
           min_new_tokens > 0 || !bad_words.empty() || !suppress_tokens.empty() || !begin_suppress_tokens.empty() ||
           !logit_bias.empty();
  }
};

/// Hugging Face's early_stopping: false, true and "never".
enum class EarlyStopping : uint8_t { No, Yes, Never };

/// Search parameters under Hugging Face's names, with its meanings. num_beams > 1 selects beam search, or beam sampling
/// if do_sample is true. Otherwise num_return_sequences sequences are sampled independently.
struct SearchParams {
  int64_t num_beams = 1;
  int64_t num_return_sequences = 1;  ///< at most num_beams if num_beams > 1
  EarlyStopping early_stopping = EarlyStopping::No;
  double length_penalty = 1;  ///< score of a beam: log-probability / length ^ length_penalty
  bool operator==(const SearchParams&) const = default;
};

/// One of several inputs of an encoder of which one answer is made. The probability of a token is the sum of those by
/// each input, times exp(log_weight); these weights add up to 1.
struct WeightedSource {
  std::vector<int32_t> tokens;  ///< at least one
  float log_weight = 0;
};

/// A passage of an index that was found for a request.
struct RetrievedPassage {
  int64_t number = 0;  ///< in the index, from 0
  float score = 0;     ///< inner product with the question's vector
  std::string title, text;
};

/// A generation request.
struct Request {
  std::string id;               ///< not empty; appears in every reply and log line
  std::vector<int32_t> prompt;  ///< at least one token; with a source any number: the answer continues them
  int64_t max_new_tokens = 16;
  SamplingParams sampling;
  std::vector<int64_t> eos;  ///< end-of-sequence token ids; the model's by default
  bool ignore_eos = false;
  SearchParams search;
  int64_t logprobs = -1;  ///< k >= 0: every token carries its log-probability and the k most likely tokens; not
                          ///< available with beams; -1: off
  /// k >= 0: the first event has every token of the prompt but the first with its log-probability, its rank and the k
  /// most likely tokens in its place; not available with beams or an encoder; -1: off.
  int64_t prompt_logprobs = -1;
  double max_time = 0;  ///< seconds after submit() at which the answer ends with Finish::Length; 0: no limit
  /// What an encoder of images or audio reads, one row under the names of a forward pass: pixel_values, or
  /// input_features with attention_mask. Empty: the model has no such encoder.
  Arrays source;
  bool has_start = false;  ///< with a source: `prompt` begins the decoder's sequence, without the model's start token
  std::vector<WeightedSource> sources;  ///< in place of `prompt`, of an encoder of tokens; empty: the prompt
  /// The constraint at the beginning of the answer, of which every sequence gets its own; nullptr: none. Not with
  /// beams.
  std::shared_ptr<const TokenConstraint> constraint;
  std::shared_ptr<const Adapter> adapter = {};  ///< nullptr: the base model
  std::vector<PromptImage> images = {};         ///< in the order of the prompt
};

/// Reason why a sequence ended; None while it runs.
enum class Finish { None, Length, Stop, Cancelled, Failed };

/// A generated token. Log-probabilities are those of the model's scores before any processing.
struct Token {
  int32_t id = 0;
  float logprob = 0;  ///< 0 if not requested
  /// The most likely tokens and their log-probabilities, best first.
  std::vector<std::pair<int32_t, float>> top_logprobs;
  bool operator==(const Token&) const = default;
};

/// A token of a prompt, as the model scores it after the tokens before it.
struct PromptToken {
  Token token;
  int64_t rank = 1;  ///< 1: no token has a higher score
  bool operator==(const PromptToken&) const = default;
};

/// One event of a request's stream. Each of the num_return_sequences sequences ends exactly once, with finish != None.
/// Beam search emits each sequence whole, in one event, best first.
struct Event {
  int64_t sequence = 0;       ///< index of the returned sequence, from 0
  std::vector<Token> tokens;  ///< empty in an event that only ends the sequence
  Finish finish = Finish::None;
  std::string reason;  ///< Failed: why, for example RankLost
  /// Stop: the constraint ends the sequence, so that the last token is no end token but a part of the answer.
  bool ends_with_text = false;
  bool constraint_failed = false;  ///< Failed: no token can continue the answer as the constraint demands
  /// First event of a request: seconds from submit() to the first step; otherwise negative.
  double queued_seconds = -1;
  /// First event of a request: prompt tokens found in the prefix cache; otherwise negative.
  int64_t cached_tokens = -1;
  double score = 0;  ///< of a beam: Hugging Face's sequences_scores
  /// First event of a request for which passages were found: these, best first; otherwise nullptr.
  std::shared_ptr<const std::vector<RetrievedPassage>> passages = {};
  /// First event of a request with prompt_logprobs: the prompt's tokens from the second on; otherwise nullptr.
  std::shared_ptr<const std::vector<PromptToken>> prompt_tokens = {};
};

/// Maximum number of values of all outputs of a forward request: 256 MiB of floats. The server refuses more, and a rank
/// keeps memory for them.
inline constexpr int64_t max_forward_values = int64_t{64} << 20;

/// One forward pass over given inputs without generation: embeddings, classification, scoring. Names and shapes are
/// Hugging Face's: [batch, length], padded or not. Tokens whose attention_mask is 0 are left out.
struct ForwardRequest {
  std::string id;  ///< not empty
  /// Accepted names: input_ids, attention_mask, token_type_ids, position_ids, decoder_input_ids, decoder_attention_mask
  /// (int64) and pixel_values (float, [images, channels, height, width]). Defaults: a mask of ones, token types of 0,
  /// positions 0, 1, ..., and decoder ids shifted from input_ids.
  Arrays inputs;
  bool hidden_states = false, attentions = false;
  /// Names of the outputs to return; empty: those that Hugging Face's model of this class returns.
  std::vector<std::string> outputs;
  /// Return the outputs of each micro-batch as "micro_batches.0.logits" instead of concatenating them.
  bool by_micro_batch = false;
  std::shared_ptr<const Adapter> adapter = {};  ///< nullptr: the base model
};

/// Result of a forward request. With Finish::Stop, `outputs` is filled; positions without a token are 0.
struct ForwardResult {
  Arrays outputs;
  Finish finish = Finish::Stop;
  std::string reason;      ///< Failed: why, for example RankLost
  bool too_large = false;  ///< Failed: the device has too little memory for this forward pass; the engine continues
};

/// Counters and gauges since the start of the engine.
struct Statistics {
  int64_t running = 0, waiting = 0, finished = 0, failed = 0, rejected = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0, steps = 0;
  int64_t kv_blocks = 0, kv_blocks_used = 0;
  int64_t preempted = 0;  ///< requests that released their KV blocks and started again
  /// Prompt tokens looked up in the prefix cache, and those found in it.
  int64_t prefix_tokens = 0, prefix_hit_tokens = 0;
  /// Speculative decoding: rows of sequences that had drafts, their drafted tokens, those of them that became tokens of
  /// an answer, and how often a sequence stopped drafting for a while.
  int64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0, draft_pauses = 0;
};

/// Durations and sizes of one step, for histograms.
struct StepTimes {
  double seconds = 0;  ///< from sending the step message to receiving its results
  /// Idle time between the previous step and this one while requests were open; negative if there were none.
  double gap_seconds = -1;
  int64_t tokens = 0;  ///< rows of the step: prompt tokens and decode tokens
  int64_t prompt_tokens = 0;
};

/// Thread-safe interface of the engine on rank 0.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Queues a request. `on_event` is called on the engine's thread, in order, until every sequence has ended; it must
  /// not block. Throws Error{InvalidRequest} for token ids outside the vocabulary, prompts that are too long
  /// and parameters that contradict each other, Error{QueueFull} if max_queue requests are waiting, and
  /// Error{RankLost} after a failure.
  virtual void submit(Request, std::function<void(const Event&)> on_event) = 0;
  /// Queues a forward request. `on_done` is called once, on the engine's thread; it must not block. Throws
  /// Error{InvalidRequest} naming the tensor and its defect, Error{QueueFull} or Error{RankLost}.
  virtual void forward(ForwardRequest, std::function<void(ForwardResult)> on_done) = 0;
  /// Ends a request within one step; its open sequences end with Finish::Cancelled. Unknown ids are ignored.
  virtual void cancel(const std::string& id) = 0;
  /// Loads factors of an adapter into a slot of all ranks, as layers::AdapterSlots::load takes them, and returns when
  /// they have it. No request has the slot. Throws Error{RankLost} after a failure; std::logic_error where the engine
  /// has no slots.
  virtual void load_adapter(int32_t /*slot*/, Arrays /*factors*/) {
    throw std::logic_error("this engine has no memory for adapters");
  }
  /// Returns the current counters and gauges.
  virtual Statistics statistics() const = 0;
  /// Fails all open requests with `reason`; later submits throw Error{RankLost}.
  virtual void fail(const std::string& reason) = 0;
  /// Number of completed steps, for the liveness probe.
  virtual int64_t steps() const = 0;
};

}  // namespace pm::engine
