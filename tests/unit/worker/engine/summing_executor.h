// SPDX-License-Identifier: Apache-2.0
// An executor with a known answer: each id is the sum of all tokens of its own sequence so far, weighted by position
// and read back through the block tables. A wrong slot, block or position changes the answer at once.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <numeric>

#include "worker/base/error.h"
#include "worker/engine/sampling/philox.h"
#include "worker/engine/scheduling/scheduler.h"

namespace pm::engine {

inline constexpr int64_t vocabulary = 97;

/// Weight of the token at a position.
inline int64_t weight_of(int64_t position) { return 1 + position % 5; }

/// "KV cache": one number per slot. hidden[t] = weighted sum of the sequence's tokens up to t modulo the vocabulary.
class SummingExecutor final : public parallel::Executor,
                              public parallel::GenerationExecutor,
                              public parallel::SamplingExecutor,
                              public parallel::DeviceSampler {
 public:
  explicit SummingExecutor(int64_t blocks, bool device_sampling = false)
      : device_sampling_(device_sampling),
        comm_(comm::in_process(1, std::chrono::seconds(5))[0]),
        cache_(at::zeros({blocks * 16}, at::kLong)) {}
  void check(const Arrays& inputs) const override {
    if (!inputs.contains("input_ids")) throw Error(Reason::InvalidRequest, "the inputs have no tensor \"input_ids\"");
  }
  /// Returns the ids times two.
  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::OutputSelection&) override {
    if (fail) throw Error(Reason::RankLost, "rank 1 died of signal 9");
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held.wait(true);
    for (const Arrays& inputs : requests) {
      if (inputs.contains("too_large"))
        TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory. Tried to allocate 7.00 GiB. The device is full");
    }
    ++forwards;
    std::vector<Arrays> outputs;
    for (const Arrays& inputs : requests) {
      Array twice = inputs.at("input_ids");
      for (int64_t& id : std::get<std::vector<int64_t>>(twice.values)) id *= 2;
      outputs.push_back({{"logits", twice}});
    }
    return outputs;
  }
  bool caches() const override { return has_cache; }
  void make_blocks(int64_t blocks) override { cache_ = at::zeros({blocks * 16}, at::kLong); }
  void copy_blocks(std::span<const int32_t> pairs) override {
    for (size_t i = 0; i + 1 < pairs.size(); i += 2)
      cache_.narrow(0, pairs[i + 1] * 16, 16).copy_(cache_.narrow(0, pairs[i] * 16, 16));
    copies += static_cast<int64_t>(pairs.size() / 2);
  }
  void copy_states(std::span<const int32_t> pairs) override {
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) states_[pairs[i + 1]] = states_.at(pairs[i]);
    state_copies += static_cast<int64_t>(pairs.size() / 2);
  }
  at::Tensor step(models::StepRows& rows) override {
    const layers::Batch& batch = rows.batch;
    if (fail) throw Error(Reason::RankLost, "rank 1 died of signal 9");
    if (rows.source) cache_.index_put_({rows.cross.slots}, rows.source->tokens * (1 + rows.source->positions % 5));
    if (!has_cache) return sums_of(batch);
    if (keeps_states) return sums_of_states(batch);
    if (batch.states.defined()) return sums_behind(batch);
    at::Tensor values = batch.tokens * (1 + batch.positions % 5);
    if (short_rope_tokens > 0) {  // as keys of long sequences are others than those of short ones
      const at::Tensor behind = batch.positions.ge(short_rope_tokens);
      values = values + (batch.long_rows.defined() ? behind.logical_or(batch.long_rows) : behind);
    }
    cache_.index_put_({batch.slots}, values);
    at::Tensor out = at::zeros({batch.tokens.size(0), 1});
    for (const ops::SequenceSpan& s : batch.sequences.spans) {
      int64_t sum = 0;
      for (const ops::SequenceSpan& source : rows.cross.sequences.spans) {  // encoder tokens count as well
        for (int64_t t = 0; source.first == s.first && t < source.keys; ++t)
          sum += cache_[source.blocks[static_cast<size_t>(t / 16)] * 16 + t % 16].item<int64_t>();
      }
      for (int64_t t = 0; t < s.context + s.tokens; ++t) {
        sum += cache_[s.blocks[static_cast<size_t>(t / 16)] * 16 + t % 16].item<int64_t>();
        if (t >= s.context) out[s.first + t - s.context][0] = static_cast<float>(sum % vocabulary);
      }
    }
    widest = std::max<int64_t>(widest, batch.tokens.size(0));
    computed += batch.tokens.size(0);
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return out;
  }
  /// An encoder of sounds: "sounds" [1, states] are the tokens of one that reads text.
  models::StackInput source_input(const Arrays& inputs) const override {
    const auto found = inputs.find("sounds");
    if (found == inputs.end()) throw Error(Reason::InvalidRequest, "the inputs have no tensor \"sounds\"");
    models::StackInput input;
    input.batch.tokens = at::tensor(std::get<std::vector<float>>(found->second.values)).to(at::kLong);
    const int64_t states = input.batch.tokens.size(0);
    input.batch.positions = input.places = at::arange(states, at::kLong);
    input.batch.sequences.spans.push_back(
        {.first = 0, .tokens = states, .context = 0, .keys = states, .key_row = 0, .blocks = {}});
    return input;
  }
  parallel::GenerationExecutor* generation() override { return this; }
  parallel::SamplingExecutor* sampling() override { return this; }
  parallel::DeviceSampler* device_sampler() override { return device_sampling_ ? this : nullptr; }
  at::Tensor greedy(const at::Tensor& hidden) override { return hidden.squeeze(1).to(at::kLong); }
  at::Tensor logits(const at::Tensor& hidden) override {
    return at::one_hot(hidden.squeeze(1).to(at::kLong), vocabulary).to(at::kFloat) * sharpness;
  }
  /// Samples with the host's sampler, with which a device must agree.
  at::Tensor sample(const at::Tensor& hidden, const ops::SampleBatch& batch) override {
    const at::Tensor scores = logits(hidden);
    for (const auto& [row, edit] : batch.edits) {
      float& score = scores.mutable_data_ptr<float>()[row * vocabulary + edit.id];
      score = (score < 0 ? score * edit.factor : score / edit.factor) - edit.subtrahend;
    }
    std::vector<int64_t> ids;
    for (size_t i = 0; i < batch.sampling.size(); ++i) {
      const ops::RowSampling& how = batch.sampling[i];
      const SamplingParams sampling{.do_sample = how.sample,
                                    .temperature = how.temperature,
                                    .top_k = how.top_k,
                                    .top_p = how.top_p,
                                    .min_p = how.min_p};
      ids.push_back(
          sample_token({scores.const_data_ptr<float>() + batch.rows[i] * vocabulary, static_cast<size_t>(vocabulary)},
                       sampling, {}, uniform(how.seed, how.sequence, how.position)));
    }
    sampled += static_cast<int64_t>(ids.size());
    return at::tensor(ids, at::kLong);
  }
  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t kv_bytes() const override { return 0; }
  int64_t short_rope_tokens = 0;  ///< above 0: tokens of longer sequences count one more each
  bool has_cache = true;          ///< false: a step has whole sequences
  bool keeps_states = false;      ///< true: sums are kept by slot, and nothing is read from blocks
  float sharpness = 100;          ///< margin of the expected id's score over all others
  /// As a module for multi-token prediction: the tokens whose rows each sequence of the last step could see.
  std::vector<std::vector<int32_t>> seen;
  std::atomic<bool> fail{false}, slow{false};
  std::atomic<bool> held{false};  ///< true: forward() waits
  std::atomic<int64_t> widest{0}, computed{0}, copies{0}, forwards{0}, sampled{0}, state_copies{0};

 private:
  /// What a recurrent layer keeps of a sequence.
  struct State {
    int64_t sum = 0, tokens = 0;
  };
  /// Returns the sums of sequences that go on from the states of their slots.
  at::Tensor sums_of_states(const layers::Batch& batch) {
    at::Tensor out = at::zeros({batch.tokens.size(0), 1});
    EXPECT_EQ(batch.state_slots.size(), batch.sequences.spans.size());
    for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
      const ops::SequenceSpan& s = batch.sequences.spans[i];
      State& state = states_[batch.state_slots.at(i)];
      if (s.context == 0) state = {};
      EXPECT_EQ(state.tokens, s.context) << "the state of slot " << batch.state_slots[i];
      for (int64_t row = s.first; row < s.first + s.tokens; ++row) {
        state.sum += batch.tokens[row].item<int64_t>() * weight_of(state.tokens++);
        out[row][0] = static_cast<float>(state.sum % vocabulary);
      }
    }
    computed += batch.tokens.size(0);
    return out;
  }
  /// Returns the sums behind those of the model, for the tokens that follow its own.
  at::Tensor sums_behind(const layers::Batch& batch) {
    cache_.index_put_({batch.slots}, batch.tokens);
    seen.clear();
    for (const ops::SequenceSpan& s : batch.sequences.spans) {
      std::vector<int32_t>& own = seen.emplace_back();
      for (int64_t t = 0; t < s.context + s.tokens; ++t)
        own.push_back(cache_[s.blocks[static_cast<size_t>(t / 16)] * 16 + t % 16].item<int32_t>());
    }
    widest = std::max<int64_t>(widest, batch.tokens.size(0));
    computed += batch.tokens.size(0);
    const at::Tensor values = batch.tokens * (1 + (batch.positions + 1) % 5);
    return (batch.states + values.unsqueeze(1)).remainder(vocabulary);
  }
  /// Returns the sums of whole sequences, which no block table is needed for.
  static at::Tensor sums_of(const layers::Batch& batch) {
    const at::Tensor weighted = batch.tokens * (1 + batch.positions % 5);
    at::Tensor out = at::zeros({batch.tokens.size(0), 1});
    for (const ops::SequenceSpan& s : batch.sequences.spans) {
      EXPECT_TRUE(s.context == 0 && s.keys == s.tokens && s.key_row == s.first && s.blocks.empty());
      out.narrow(0, s.first, s.tokens)
          .copy_(at::cumsum(weighted.narrow(0, s.first, s.tokens), 0).remainder(vocabulary).unsqueeze(1));
    }
    return out;
  }

  const bool device_sampling_;
  std::shared_ptr<comm::Communicator> comm_;
  at::Tensor cache_;
  std::map<int64_t, State> states_;  ///< by slot
};

/// Returns the weighted sum of a sequence.
inline int64_t sum_of(std::span<const int32_t> tokens) {
  int64_t sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) sum += tokens[i] * weight_of(static_cast<int64_t>(i));
  return sum;
}

/// Returns the expected answer to `tokens`; with an encoder, after it read `source`.
inline std::vector<int32_t> expected(std::vector<int32_t> tokens, int64_t count, std::span<const int32_t> source = {}) {
  const size_t prompt = tokens.size();
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((sum_of(source) + sum_of(tokens)) % vocabulary));
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

struct Stream {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<int32_t> tokens;
  Finish finish = Finish::None;
  std::string reason;
  void operator()(const Event& event) {
    std::lock_guard lock(mutex);
    EXPECT_EQ(finish, Finish::None) << "an event after the end";
    for (const Token& token : event.tokens) tokens.push_back(token.id);
    finish = event.finish;
    reason = event.reason;
    done.notify_all();
  }
  Finish wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, std::chrono::seconds(60), [&] { return finish != Finish::None; }));
    return finish;
  }
};

struct Fixture {
  explicit Fixture(Limits limits, bool device_sampling = false)
      : executor(new SummingExecutor(limits.kv_blocks, device_sampling)),
        rank(std::unique_ptr<parallel::Executor>(executor)),
        scheduler(rank, {}, limits) {
    executor->short_rope_tokens = limits.short_rope_tokens;
    executor->keeps_states = limits.recurrent;
  }
  SummingExecutor* executor;
  Rank rank;
  Scheduler scheduler;
  void submit(const std::string& id, std::vector<int32_t> prompt, int64_t count, Stream& stream,
              SamplingParams sampling = {}) {
    scheduler.submit({id, std::move(prompt), count, sampling, {}, true, {}},
                     [&](const Event& event) { stream(event); });
  }
};

inline std::vector<int32_t> prompt_of(int seed, size_t length) {
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<int32_t>((static_cast<size_t>(seed) * 31 + i * 7) % vocabulary));
  return prompt;
}

}  // namespace pm::engine
