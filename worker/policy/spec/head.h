// SPDX-License-Identifier: Apache-2.0
// The task heads of a model: what every head has, and a spec for each kind. worker/models/heads runs them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/mlp.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// What comes before the scores: scale * norm(act(dense(state))). Absent parts are left out.
struct HeadTransform {
  std::optional<Linear> dense;
  std::optional<Activation> activation;
  std::optional<Norm> norm;
  double scale = 1;

  void collect(ParamCollector&) const;
};

/// Scores over the vocabulary: the LM head.
struct LogitsSpec {
  std::optional<Pool> pool;  ///< the state of a sequence that is scored; absent: every token's
  HeadTransform transform;
  Linear linear;       ///< [vocabulary, width]
  double softcap = 0;  ///< as Attention's

  void collect(ParamCollector&) const;
};

/// Scores of classes, or the projection of a vector.
struct ClassesSpec {
  std::optional<Pool> pool;  ///< as LogitsSpec's
  std::optional<Mlp> mlp;    ///< before the transform: states become norm(states + mlp(states))
  HeadTransform transform;
  std::optional<Linear> linear;  ///< [classes, width]; absent: the transformed states are the scores
  bool vector = false;  ///< `linear` is one vector [width] with a bias of one number: one score per state, and no
                        ///< dimension of classes
  bool mask_question = false;  ///< tokens of the question but the first have scores of 1e6 less (BigBird)

  void collect(ParamCollector&) const;
};

/// Scores of table cells, made of the scores of their tokens (TAPAS). A second score of tokens chooses the column.
struct CellsSpec {
  HeadTransform transform;
  Linear tokens, columns;          ///< both as ClassesSpec::vector
  double temperature = 1;          ///< divisor of token scores
  int64_t rows = 64, across = 32;  ///< size of the largest table; cells beyond it count as the last
  bool empty = false;              ///< true: no column may be chosen

  void collect(ParamCollector&) const;
};

/// Beam search for an answer span: the most likely first tokens, for each of them the most likely last tokens, and a
/// score that there is no answer (XLNet's head for SQuAD 2.0). It has five outputs: probabilities and positions of
/// first tokens, of last tokens, score of no answer.
struct SpansSpec {
  Linear start;  ///< [1, hidden]: of a token, whether an answer begins there
  Linear end_dense,
      end;  ///< [hidden, 2 hidden], [1, hidden]: of a token beside the answer's first, whether it ends there
  std::optional<Norm> end_norm;
  Linear answer_dense,
      answer;  ///< [hidden, 2 hidden], [1, hidden]: of the mean of first tokens beside one token of the row
  int64_t starts = 5, ends = 5;  ///< numbers of first tokens, and of last tokens for each

  void collect(ParamCollector&) const;
};

/// Scores of chosen tokens with each dense vector, from their states: query . key / sqrt(width) (VisualBERT's phrases
/// and regions).
struct PairsSpec {
  Linear query, key;   ///< [width, hidden]
  std::string chosen;  ///< the request's tensor of chosen columns [rows, tokens], -1: the first

  void collect(ParamCollector&) const;
};

/// Compares the normalized vectors of two heads (text, image), times exp(scalar).
struct SimilaritySpec {
  std::array<std::string, 2> between;
  std::optional<Param> scalar;  ///< CLIP's logit_scale

  void collect(ParamCollector&) const;
};

/// The mean of two heads (DeiT's classifiers).
struct MeanSpec {
  std::array<std::string, 2> of;

  void collect(ParamCollector&) const {}
};

struct Head {
  std::string name, stack;  ///< the stack that it reads
  std::vector<std::string> outputs{
      "logits"};  ///< Hugging Face's names; two (start_logits, end_logits): one column each
  std::variant<LogitsSpec, ClassesSpec, CellsSpec, SpansSpec, PairsSpec, SimilaritySpec, MeanSpec> kind;

  /// Returns the spec when the head is of this kind, or nullptr.
  template <typename Spec>
  const Spec* as() const {
    return std::get_if<Spec>(&kind);
  }
  /// Returns the state of a sequence that the head reads; nothing for heads that read every token's, or other heads.
  std::optional<Pool> pool() const;
  /// Returns the number of scores of one state; 0 for heads that do not score states one by one.
  int64_t scores() const;
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
