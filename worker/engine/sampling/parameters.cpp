// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/sampling/parameters.h"

#include <algorithm>
#include <stdexcept>

namespace pm::engine {

namespace {

using base::IntegerRange;
using base::NumberRange;
using enum ParameterGroup;

constexpr IntegerRange from_zero_range{0, INT32_MAX}, from_one_range{1, INT64_MAX};
constexpr NumberRange probability_range{0, 1, true};

constexpr Parameter parameter_table[] = {
    {.name = "top_p",
     .group = Common,
     .member = &SamplingParams::top_p,
     .range = probability_range,
     .description = "Nucleus sampling: sample from the most likely tokens whose probabilities add up to this value"},
    {.name = "top_k",
     .group = Common,
     .member = &SamplingParams::top_k,
     .range = IntegerRange{-1, INT32_MAX},
     .description = "Sample from this many most likely tokens; 0 or -1: all",
     .default_text = "50; OpenAI's routes: 0"},
    {.name = "min_p",
     .group = Common,
     .member = &SamplingParams::min_p,
     .range = NumberRange{0, 1},
     .description = "Minimum probability of a token relative to the most likely one"},
    {.name = "typical_p",
     .group = Common,
     .member = &SamplingParams::typical_p,
     .range = probability_range,
     .description =
         "Locally typical sampling: sample from the most typical tokens whose probabilities add up to this value"},
    {.name = "presence_penalty",
     .group = Common,
     .member = &SamplingParams::presence_penalty,
     .range = NumberRange{-2, 2},
     .description = "Subtracted from the logits of tokens that the answer contains"},
    {.name = "frequency_penalty",
     .group = Common,
     .member = &SamplingParams::frequency_penalty,
     .range = NumberRange{-2, 2},
     .description = "Subtracted from the logit of a token once per occurrence in the answer"},
    {.name = "repetition_penalty",
     .group = Common,
     .member = &SamplingParams::repetition_penalty,
     .range = NumberRange{0, 100, true},
     .description = "Penalty of tokens that the prompt or the answer contains; 1: none"},
    {.name = "no_repeat_ngram_size",
     .group = Common,
     .member = &SamplingParams::no_repeat_ngram_size,
     .range = from_zero_range,
     .description = "No n-gram of this many tokens occurs twice; 0: off"},
    {.name = "seed",
     .group = Common,
     .member = &SamplingParams::seed,
     .range = IntegerRange{},
     .description = "Seed of sampling; equal requests with equal seeds give equal answers",
     .default_text = "random; command line: 0"},
    {.name = "max_time",
     .group = Common,
     .member = &GenerationConfig::max_time,
     .range = NumberRange{0, 86'400, true},
     .description = "Generation stops after this many seconds"},
    {.name = "ignore_eos",
     .group = Common,
     .member = &GenerationConfig::ignore_eos,
     .description = "Continue after an end token"},
    {.name = "num_beams",
     .group = Search,
     .member = &SearchParams::num_beams,
     .range = IntegerRange{1, 256},
     .description = "Number of beams; 1: no beam search"},
    {.name = "num_return_sequences",
     .group = Search,
     .member = &SearchParams::num_return_sequences,
     .range = IntegerRange{1, 128},
     .description = "Number of sequences per input",
     .openai = {.name = "n", .description = "Number of completions per prompt"}},
    {.name = "length_penalty",
     .group = Search,
     .member = &SearchParams::length_penalty,
     .range = NumberRange{-100, 100},
     .description = "Beam search: scores are divided by the length to this power"},
    {.name = "early_stopping",
     .group = Search,
     .member = &SearchParams::early_stopping,
     .description = "Beam search: true ends it when num_beams beams have finished, \"never\" when no beam can improve"},
    {.name = "max_new_tokens",  // max_tokens and max_completion_tokens of OpenAI's routes are read by these
     .group = Length,
     .member = &GenerationConfig::max_new_tokens,
     .range = from_one_range,
     .description = "Maximum number of new tokens; takes precedence over max_length",
     .default_text = "20"},
    {.name = "max_length",
     .group = Length,
     .member = &GenerationConfig::max_length,
     .range = from_one_range,
     .description = "Maximum number of tokens of input and answer together"},
    {.name = "min_new_tokens",
     .group = Length,
     .member = &SamplingParams::min_new_tokens,
     .range = from_zero_range,
     .description = "Minimum number of new tokens before an end token",
     .openai = {.name = "min_tokens", .description = "Minimum number of tokens before an end token"}},
    {.name = "forced_bos_token_id",
     .group = Length,
     .member = &SamplingParams::forced_bos,
     .range = from_zero_range,
     .description =
         "Id of the token after the decoder's start token, such as the target language of a translation model",
     .default_text = "the checkpoint's"},
    {.name = "forced_eos_token_id",
     .group = Length,
     .member = &SamplingParams::forced_eos,
     .range = from_zero_range,
     .description = "Id of the token at the maximum length",
     .default_text = "the checkpoint's"},
    {.name = "min_length",
     .group = Length,
     .member = &GenerationConfig::min_length,
     .range = from_zero_range,
     .description = "Minimum number of tokens of input and answer together"},
    {.name = "do_sample",
     .group = Mode,
     .member = &SamplingParams::do_sample,
     .description = "Sample tokens instead of greedy decoding"},
    {.name = "temperature",
     .group = Mode,
     .member = &SamplingParams::temperature,
     .range = NumberRange{0, 1000, true},
     .description = "Sampling temperature",
     .openai = {.name = "temperature",
                .range = base::NumberRange{0, 2},
                .description = "Sampling temperature; 0: greedy"}},
};

/// The alternative of ParameterValue that holds values of a member of type T.
template <class T>
struct ValueOf {
  using type = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int64_t, T>;
};
template <class T>
struct ValueOf<std::optional<T>> : ValueOf<T> {};
template <class T, class Part>
typename ValueOf<T>::type value_type(T Part::*);

bool contains(const ParameterRange& range, const ParameterValue& value) {
  if (const auto* integers = std::get_if<base::IntegerRange>(&range))
    return integers->contains(std::get<int64_t>(value));
  if (const auto* numbers = std::get_if<base::NumberRange>(&range)) return numbers->contains(std::get<double>(value));
  return true;
}

}  // namespace

std::span<const Parameter> generation_parameters() { return parameter_table; }

const Parameter& parameter_of(const ParameterMember& member) {
  const auto found = std::find_if(std::begin(parameter_table), std::end(parameter_table),
                                  [&](const Parameter& parameter) { return parameter.member == member; });
  if (found == std::end(parameter_table)) throw std::logic_error("a member has no row in the table of parameters");
  return *found;
}

ParameterType Parameter::type() const {
  return std::visit(
      [](auto pointer) {
        using Value = decltype(value_type(pointer));
        if constexpr (std::is_same_v<Value, bool>)
          return ParameterType::Boolean;
        else if constexpr (std::is_same_v<Value, int64_t>)
          return ParameterType::Integer;
        else if constexpr (std::is_same_v<Value, double>)
          return ParameterType::Number;
        else
          return ParameterType::EarlyStopping;
      },
      member);
}

const char* Parameter::name_in(Dialect dialect) const {
  return dialect == Dialect::HuggingFace || group == Common ? name : openai.name;
}

ParameterRange Parameter::range_in(Dialect dialect) const {
  const bool same = dialect == Dialect::HuggingFace || std::holds_alternative<std::monostate>(openai.range);
  return same ? range : openai.range;
}

const char* Parameter::description_in(Dialect dialect) const {
  return dialect == Dialect::OpenAi && openai.description ? openai.description : description;
}

std::string Parameter::allowed(Dialect dialect) const {
  const ParameterRange values = range_in(dialect);
  if (const auto* integers = std::get_if<IntegerRange>(&values)) return integers->text();
  if (const auto* numbers = std::get_if<NumberRange>(&values)) return numbers->text();
  return type() == ParameterType::Boolean ? "true or false" : "true, false or \"never\"";
}

bool ParameterValues::assign(const Parameter& parameter, Dialect dialect, const ParameterValue& value) {
  return std::visit(
      [&](auto pointer) {
        using Value = decltype(value_type(pointer));
        const auto* typed = std::get_if<Value>(&value);
        if (!typed || !contains(parameter.range_in(dialect), value)) return false;
        auto& member = member_of(config_, pointer);
        member = static_cast<std::remove_reference_t<decltype(member)>>(*typed);
        mark(parameter);
        return true;
      },
      parameter.member);
}

bool ParameterValues::has(const ParameterMember& member) const {
  return std::any_of(set_.begin(), set_.end(), [&](const Parameter* parameter) { return parameter->member == member; });
}

void ParameterValues::apply_to(GenerationConfig& config) const {
  for (const Parameter* parameter : set_)
    std::visit([&](auto pointer) { member_of(config, pointer) = member_of(config_, pointer); }, parameter->member);
  config.sampling.top_k = std::max<int64_t>(config.sampling.top_k, 0);  // vLLM's -1 disables top_k
}

void ParameterValues::mark(const Parameter& parameter) {
  if (!has(parameter.member)) set_.push_back(&parameter);
}

}  // namespace pm::engine
