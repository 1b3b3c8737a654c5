// SPDX-License-Identifier: Apache-2.0
// The table of generation parameters: the name, the allowed values, the meaning and the member of each. The parsers of
// HTTP requests, command lines and generation_config.json, the OpenAPI document and the tables of the docs are made
// from it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/range.h"
#include "worker/engine/engine.h"

namespace pm::engine {

constexpr int64_t default_new_tokens = 20;  ///< of Hugging Face's generate, where no length is set
constexpr int64_t default_top_k = 50;       ///< of Hugging Face's generate when it samples

/// All generation parameters, as transformers' GenerationConfig holds them.
struct GenerationConfig {
  SamplingParams sampling;
  SearchParams search;
  std::optional<int64_t> max_new_tokens;          ///< takes precedence over max_length
  std::optional<int64_t> max_length, min_length;  ///< tokens of prompt (or start token) and answer together
  std::optional<double> max_time;                 ///< seconds
  bool ignore_eos = false;                        ///< continue after an end token
  std::optional<std::vector<int64_t>> eos;        ///< ids of end tokens; none: the model's
  bool operator==(const GenerationConfig&) const = default;
};

/// The two sets of names. /generate, the command line and generation_config.json use Hugging Face's.
enum class Dialect : uint8_t { HuggingFace, OpenAi };

/// Parameters that parsers read together. /generate and the command line have all groups.
enum class ParameterGroup : uint8_t {
  Common,  ///< one name and one meaning on every route
  Search,  ///< beams and returned sequences
  Length,  ///< lengths and forced tokens
  Mode,    ///< whether to sample, and the temperature
};

enum class ParameterType : uint8_t { Boolean, Integer, Number, EarlyStopping };
/// A value as parsers give it: integers of all sizes, and token ids, are int64_t here.
using ParameterValue = std::variant<bool, int64_t, double, EarlyStopping>;
/// The allowed values of an integer or a number; none: every value of the type.
using ParameterRange = std::variant<std::monostate, base::IntegerRange, base::NumberRange>;
/// The member of GenerationConfig, or of the part of it that has the member.
using ParameterMember =
    std::variant<bool SamplingParams::*, int32_t SamplingParams::*, int64_t SamplingParams::*,
                 uint64_t SamplingParams::*, double SamplingParams::*, int64_t SearchParams::*, double SearchParams::*,
                 EarlyStopping SearchParams::*, bool GenerationConfig::*, std::optional<int64_t> GenerationConfig::*,
                 std::optional<double> GenerationConfig::*>;

/// What OpenAI's routes have in place of a parameter's own words.
struct OpenAiForm {
  const char* name = nullptr;         ///< nullptr: they do not read the parameter with its group
  ParameterRange range = {};          ///< none: the same
  const char* description = nullptr;  ///< nullptr: the same
};

/// A row of the table.
struct Parameter {
  const char* name;  ///< Hugging Face's, or vLLM's where Hugging Face has none
  ParameterGroup group;
  ParameterMember member;
  ParameterRange range = {};
  const char* description;             ///< a fragment of at most 120 characters
  const char* default_text = nullptr;  ///< what holds where nothing sets it; nullptr: the member's initial value
  OpenAiForm openai = {};              ///< of the groups other than Common

  ParameterType type() const;
  /// Returns nullptr if the dialect does not have the parameter.
  const char* name_in(Dialect) const;
  ParameterRange range_in(Dialect) const;
  const char* description_in(Dialect) const;
  /// Returns the allowed values in words: "a number above 0 to 1", "true or false".
  std::string allowed(Dialect) const;
};

/// Returns the table in the order in which parsers read it.
std::span<const Parameter> generation_parameters();
/// Returns the row of a member. Throws std::logic_error if there is none.
const Parameter& parameter_of(const ParameterMember&);

/// Returns the member itself.
template <class T, class Part, class Config>
auto& member_of(Config& config, T Part::* member) {
  if constexpr (std::is_same_v<Part, SamplingParams>)
    return config.sampling.*member;
  else if constexpr (std::is_same_v<Part, SearchParams>)
    return config.search.*member;
  else
    return config.*member;
}

/// The parameters that a request, a command line or a file sets, with their values.
class ParameterValues {
 public:
  /// Sets a parameter. Returns false, and changes nothing, for a value of another type or outside of the range.
  bool assign(const Parameter&, Dialect, const ParameterValue&);
  /// Sets a parameter to a value that needs no check.
  template <class T, class Part>
  void set(T Part::* member, const std::type_identity_t<T>& value) {
    member_of(config_, member) = value;
    mark(parameter_of(member));
  }
  bool has(const ParameterMember&) const;
  /// Returns the value, if the parameter is set.
  template <class T, class Part>
  std::optional<T> get(T Part::* member) const {
    return has(member) ? std::optional(member_of(config_, member)) : std::nullopt;
  }
  template <class T>
  std::optional<T> get(std::optional<T> GenerationConfig::* member) const {
    return config_.*member;
  }
  /// Writes the values that are set into a configuration.
  void apply_to(GenerationConfig&) const;

 private:
  void mark(const Parameter&);

  GenerationConfig config_;
  std::vector<const Parameter*> set_;
};

}  // namespace pm::engine
