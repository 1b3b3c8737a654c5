// SPDX-License-Identifier: Apache-2.0
// Enumerations of a model's spec, and the one word of each enumerator in policies, JSON and messages.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pm::policy {

/// What a class of transformers is for.
enum class Task : uint8_t {
  Embed,
  Generate,
  FillMask,
  NextSentence,
  Classify,
  ClassifyTokens,
  QuestionAnswering,
  MultipleChoice,
  Similarity,
  ClassifyImages,
  ClassifyAudio,
  Transcribe,
  DetectObjects,
  Forward,
};

/// Which stacks a model has. Dual: a text and a vision tower.
enum class ModelKind : uint8_t { Encoder, Decoder, EncoderDecoder, Dual, Vision };

/// The state of a sequence that a pooler or a head reads. Second: DeiT's distillation token. LastButOne: of the tokens
/// without the dense vectors. Eot: the end token, or the one with the largest id when eos_token_id is 2 (CLIP).
/// LastEos: the last end token (BART, T5). Patches: the mean of all but the class token. Mean: of all tokens. Pooler:
/// the vector of the stack's pooler. ClsIndex: the token that a request names for each choice (GPT-2).
enum class Pool : uint8_t { First, Second, Last, LastButOne, Eot, LastEos, Patches, Pooler, Mean, ClsIndex };

/// The global tokens of a request that names none: its first token, those before its first separator, or those after
/// its second.
enum class GlobalTokens : uint8_t { None, First, BeforeSeparator, AfterSeparators };

/// Which states of entities a head reads: those of each, that of the first of a row, those of the first two beside each
/// other, or for each those of the tokens where its mention begins and ends beside its own (LUKE).
enum class EntityStates : uint8_t { Each, First, Pair, Span };

/// Relu2 is the square of relu (So et al. 2021, "Primer").
enum class Activation : uint8_t { Gelu, GeluNew, Relu, Silu, QuickGelu, Tanh, Relu2 };

/// The words of an enumeration, in the order of its enumerators.
template <typename Enum>
struct Words;
template <>
struct Words<Task> {
  static constexpr std::array<std::string_view, 14> all{
      "embed",           "generate",           "fill-mask",       "next-sentence", "classify",
      "classify-tokens", "question-answering", "multiple-choice", "similarity",    "classify-images",
      "classify-audio",  "transcribe",         "detect-objects",  "forward"};
};
template <>
struct Words<ModelKind> {
  static constexpr std::array<std::string_view, 5> all{"encoder", "decoder", "encoder-decoder", "dual", "vision"};
};
template <>
struct Words<Pool> {
  static constexpr std::array<std::string_view, 10> all{"first",    "second",  "last",   "last_but_one", "eot",
                                                        "last_eos", "patches", "pooler", "mean",         "cls_index"};
};
template <>
struct Words<GlobalTokens> {
  static constexpr std::array<std::string_view, 4> all{"none", "first", "before_separator", "after_separators"};
};
template <>
struct Words<EntityStates> {
  static constexpr std::array<std::string_view, 4> all{"each", "first", "pair", "span"};
};
template <>
struct Words<Activation> {
  static constexpr std::array<std::string_view, 7> all{"gelu",       "gelu_new", "relu", "silu",
                                                       "quick_gelu", "tanh",     "relu2"};
};

template <typename Enum>
constexpr std::string_view to_string(Enum value)
  requires requires { Words<Enum>::all; }
{
  return Words<Enum>::all[static_cast<size_t>(value)];
}

/// Returns the enumerator with this word, or nothing.
template <typename Enum>
constexpr std::optional<Enum> parse(std::string_view word) {
  for (size_t i = 0; i < Words<Enum>::all.size(); ++i)
    if (Words<Enum>::all[i] == word) return static_cast<Enum>(i);
  return std::nullopt;
}

/// Returns the words as a list, for grammars and messages.
template <typename Enum>
std::vector<std::string_view> words() {
  return {Words<Enum>::all.begin(), Words<Enum>::all.end()};
}

/// Returns the activation that config.json calls `word`: its word here, or another name of the same function in
/// transformers ("swish", "gelu_pytorch_tanh").
std::optional<Activation> parse_config_activation(std::string_view word);

}  // namespace pm::policy
