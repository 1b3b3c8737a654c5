// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/protocol/step_output.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "worker/engine/protocol/wire.h"
#include "worker/engine/sampling/philox.h"

namespace pm::engine {

namespace {

/// Samples the tokens that follow `history` from one row of logits.
SamplerOutput sample_row(std::span<const float> logits, const SamplingInput& input, const History& history,
                         const std::optional<TokenMask>& mask) {
  SamplerOutput result;
  for (int64_t i = 0; i < input.num_samples; ++i) {
    const double u = uniform(input.sampling->seed, static_cast<uint64_t>(input.sequence + i), history.tokens.size());
    const auto id = static_cast<int32_t>(sample_token(logits, *input.sampling, history, u, mask ? &*mask : nullptr));
    if (mask && !allowed(*mask, *input.sampling, id)) {
      result.error = "every token that the constraint allows is banned by the other parameters or has no score";
      return result;
    }
    result.tokens.push_back(input.logprobs >= 0 ? token_with_logprobs(logits, id, input.logprobs) : Token{id, 0, {}});
  }
  return result;
}

bool is_end(const SamplingParams& sampling, int32_t id) {
  return std::find(sampling.eos.begin(), sampling.eos.end(), id) != sampling.eos.end();
}

/// Samples from the rows of drafts as long as each draft is the token that was sampled before it. A constraint goes on
/// in a copy, because the batcher appends the tokens to the sequence's own. What ends the sequence, or fails, ends the
/// rows: without drafts it would be found in the next step, and so it is.
void sample_drafts(std::span<const float> rows, size_t columns, const SamplingInput& input, SamplerOutput& result) {
  const std::span<const int32_t> all = *input.drafted;
  const size_t known = input.history.tokens.size();
  std::unique_ptr<TokenConstraint> ahead;
  for (size_t i = known; i < all.size(); ++i) {
    const int32_t id = result.tokens.back().id;
    if (id != all[i] || is_end(*input.sampling, id)) return;
    std::optional<TokenMask> mask;
    if (input.constraint) {
      try {
        if (!ahead) ahead = input.constraint->fork();
        if (ahead->append(id)) return;
        mask = ahead->next();
      } catch (const std::exception&) {
        return;
      }
    }
    SamplerOutput next = sample_row(rows.subspan((1 + i - known) * columns, columns), input,
                                    {all.first(i + 1), input.history.prompt}, mask);
    if (!next.error.empty()) return;
    result.tokens.push_back(std::move(next.tokens.at(0)));
  }
}

/// Samples what follows an entry from its rows of logits.
SamplerOutput sample_entry(std::span<const float> rows, size_t columns, const SamplingInput& input) {
  SamplerOutput result;
  const std::span<const float> logits = rows.first(columns);
  std::optional<TokenMask> mask;
  if (input.constraint) {
    try {
      mask = input.mask.valid() ? input.mask.get() : input.constraint->next();
    } catch (const std::exception& error) {
      result.error = error.what();
      return result;
    }
  }
  if (input.beams) {
    result.candidates = beam_candidates(logits, *input.sampling, input.history, *input.beams, mask ? &*mask : nullptr);
    return result;
  }
  result = sample_row(logits, input, input.history, mask);
  if (input.drafted && result.error.empty()) sample_drafts(rows, columns, input, result);
  return result;
}

/// Returns the tokens of an entry whose drafts stand at its end: `ids` are those of its rows, in order.
SamplerOutput accepted(const StepEntry& entry, const int64_t*& ids) {
  SamplerOutput result;
  const auto drafts = static_cast<size_t>(entry.drafts);
  const std::span drafted = std::span(entry.tokens).last(drafts);
  for (size_t i = 0; i <= drafts && (i == 0 || result.tokens.back().id == drafted[i - 1]); ++i)
    result.tokens.push_back({static_cast<int32_t>(ids[i]), 0, {}});
  ids += drafts + 1;
  return result;
}

/// Returns log(sum_i exp(log_weights[i]) softmax(row i)) of as many rows as there are weights, in F32 as transformers
/// marginalises.
std::vector<float> marginalised(std::span<const float> rows, std::span<const float> log_weights) {
  const size_t columns = rows.size() / log_weights.size();
  std::vector<std::vector<float>> scores;
  for (size_t i = 0; i < log_weights.size(); ++i) {
    scores.push_back(log_softmax(rows.subspan(i * columns, columns)));
    for (float& score : scores.back()) score += log_weights[i];
  }
  std::vector<float> result(columns);
  for (size_t column = 0; column < columns; ++column) {
    float best = scores[0][column];
    for (const std::vector<float>& row : scores) best = std::max(best, row[column]);
    float sum = 0;
    for (const std::vector<float>& row : scores) sum += std::exp(row[column] - best);
    result[column] = best + std::log(sum);
  }
  return result;
}

void write_prompt_tokens(WireWriter& write, const std::vector<PromptToken>& tokens) {
  std::vector<int32_t> ids, best;
  std::vector<float> logprobs, best_logprobs;
  std::vector<int64_t> ranks, counts;
  for (const auto& [token, rank] : tokens) {
    ids.push_back(token.id), logprobs.push_back(token.logprob), ranks.push_back(rank);
    counts.push_back(static_cast<int64_t>(token.top_logprobs.size()));
    for (const auto& [id, logprob] : token.top_logprobs) best.push_back(id), best_logprobs.push_back(logprob);
  }
  write(ids), write(logprobs), write(ranks), write(counts), write(best), write(best_logprobs);
}

std::vector<PromptToken> read_prompt_tokens(WireReader& read) {
  std::vector<int32_t> ids, best;
  std::vector<float> logprobs, best_logprobs;
  std::vector<int64_t> ranks, counts;
  read(ids), read(logprobs), read(ranks), read(counts), read(best), read(best_logprobs);
  const auto malformed = [] { return std::invalid_argument("step output: malformed tokens of a prompt"); };
  if (logprobs.size() != ids.size() || ranks.size() != ids.size() || counts.size() != ids.size() ||
      best.size() != best_logprobs.size())
    throw malformed();
  std::vector<PromptToken> tokens;
  size_t next = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (counts[i] < 0 || static_cast<size_t>(counts[i]) > best.size() - next) throw malformed();
    PromptToken& made = tokens.emplace_back(Token{ids[i], logprobs[i], {}}, ranks[i]);
    for (const size_t end = next + static_cast<size_t>(counts[i]); next < end; ++next)
      made.token.top_logprobs.emplace_back(best[next], best_logprobs[next]);
  }
  if (next != best.size()) throw malformed();
  return tokens;
}

/// Returns the number of rows of logits of an input.
size_t rows_of(const SamplingInput& input) {
  if (input.drafted) return 1 + input.drafted->size() - input.history.tokens.size();
  return std::max<size_t>(1, input.log_weights.size());
}

template <typename T>
std::vector<T> values_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

/// A tensor that owns `values`.
template <typename T>
at::Tensor tensor_of(std::vector<T> values, std::vector<int64_t> shape, at::ScalarType type) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(owner->data(), shape, [owner](void*) {}, at::TensorOptions(type));
}

}  // namespace

DeviceSampling device_sampling(const SamplingParams& s, const History& history, int64_t sequence, int64_t num_samples,
                               size_t vocabulary) {
  return {{s.temperature, s.top_p, s.min_p, s.top_k, s.seed, static_cast<uint64_t>(sequence),
           static_cast<uint64_t>(history.tokens.size()), s.do_sample},
          num_samples,
          score_edits(s, history, vocabulary)};
}

std::vector<uint8_t> encode(const StepOutput& output) {
  WireWriter write;
  write(values_of<int64_t>(output.argmax));
  write(values_of<int64_t>(output.sampled));
  write(output.logits.defined() ? output.logits.size(1) : int64_t{0});
  write(values_of<float>(output.logits));
  write_prompt_tokens(write, output.prompt_tokens);
  write(output.states.defined() ? output.states.size(1) : int64_t{0});
  write(values_of<float>(output.states.defined() ? output.states.cpu() : output.states));
  write(output.outputs);
  return std::move(write.out);
}

StepOutput decode_output(std::span<const uint8_t> bytes) {
  WireReader read(bytes);
  std::vector<int64_t> argmax, sampled;
  std::vector<float> logits, states;
  int64_t columns = 0, width = 0;
  StepOutput output;
  read(argmax), read(sampled), read(columns), read(logits);
  output.prompt_tokens = read_prompt_tokens(read);
  read(width), read(states);
  read(output.outputs);
  const auto rows = static_cast<int64_t>(argmax.size()), num_sampled = static_cast<int64_t>(sampled.size()),
             all = static_cast<int64_t>(logits.size()), numbers = static_cast<int64_t>(states.size());
  const auto is_table = [](int64_t values, int64_t width) {
    return width >= 0 && (width == 0 ? values == 0 : values % width == 0);
  };
  if (!read.empty() || !is_table(all, columns) || !is_table(numbers, width))
    throw std::invalid_argument("step output: malformed bytes");
  if (rows > 0) output.argmax = tensor_of(std::move(argmax), {rows}, at::kLong);
  if (num_sampled > 0) output.sampled = tensor_of(std::move(sampled), {num_sampled}, at::kLong);
  if (columns > 0) output.logits = tensor_of(std::move(logits), {all / columns, columns}, at::kFloat);
  if (width > 0) output.states = tensor_of(std::move(states), {numbers / width, width}, at::kFloat);
  return output;
}

std::vector<SamplerOutput> sample(const StepMessage& message, std::span<const SamplingInput> sampling_inputs,
                                  const StepOutput& output) {
  const auto wanted = [&](OutputKind kind) {
    size_t count = 0;
    for (const StepEntry& entry : message.entries)
      count += entry.output_kind == kind ? 1 + static_cast<size_t>(entry.drafts) : 0;
    return count;
  };
  const auto rows = [](const at::Tensor& tensor) { return tensor.defined() ? static_cast<size_t>(tensor.size(0)) : 0; };
  size_t num_sampled = 0;
  for (const StepEntry& entry : message.entries)
    num_sampled += entry.output_kind == OutputKind::Sampled
                       ? static_cast<size_t>(entry.device_sampling.num_samples + entry.drafts)
                       : 0;
  size_t scored = 0;
  for (const SamplingInput& input : sampling_inputs) scored += rows_of(input);
  if (scored != wanted(OutputKind::Logits) || rows(output.logits) != scored ||
      rows(output.argmax) != wanted(OutputKind::Argmax) || rows(output.sampled) != num_sampled) {
    throw std::logic_error("step " + std::to_string(message.step) + ": expected " +
                           std::to_string(wanted(OutputKind::Argmax)) + " argmax ids, " + std::to_string(num_sampled) +
                           " sampled ids and " + std::to_string(wanted(OutputKind::Logits)) +
                           " rows of logits, found " + std::to_string(rows(output.argmax)) + ", " +
                           std::to_string(rows(output.sampled)) + " and " + std::to_string(rows(output.logits)) +
                           " with " + std::to_string(sampling_inputs.size()) + " sampling inputs");
  }
  std::vector<SamplerOutput> result;
  const int64_t* id = output.argmax.defined() ? output.argmax.const_data_ptr<int64_t>() : nullptr;
  const int64_t* sampled = output.sampled.defined() ? output.sampled.const_data_ptr<int64_t>() : nullptr;
  size_t next = 0, row = 0, following = 0;  // `following` entries belong to the sampling input before
  for (const StepEntry& entry : message.entries) {
    if (entry.output_kind == OutputKind::Argmax) result.push_back(accepted(entry, id));
    if (entry.output_kind == OutputKind::Sampled && entry.drafts > 0) {
      result.push_back(accepted(entry, sampled));
    } else if (entry.output_kind == OutputKind::Sampled) {
      result.emplace_back();
      for (int64_t i = 0; i < entry.device_sampling.num_samples; ++i)
        result.back().tokens.push_back({static_cast<int32_t>(*sampled++), 0, {}});
    }
    if (entry.output_kind != OutputKind::Logits) continue;
    if (following > 0) {
      --following;
      continue;
    }
    const SamplingInput& input = sampling_inputs[next++];
    const auto columns = static_cast<size_t>(output.logits.size(1));
    const std::span<const float> logits(output.logits.const_data_ptr<float>() + row * columns,
                                        rows_of(input) * columns);
    result.push_back(
        sample_entry(input.log_weights.empty() ? logits : marginalised(logits, input.log_weights), columns, input));
    row += rows_of(input);
    following = std::max<size_t>(1, input.log_weights.size()) - 1;
  }
  return result;
}

}  // namespace pm::engine
