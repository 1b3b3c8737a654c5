// SPDX-License-Identifier: Apache-2.0
// The base of heads that score states one by one: every token's, or one of each sequence.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "worker/layers/layers.h"
#include "worker/models/heads/head.h"

namespace pm::models {

/// What comes before the scores.
class HeadTransform {
 public:
  HeadTransform(const policy::HeadTransform&, layers::Loader&);
  /// Returns scale * norm(act(dense(states))), without the parts that are absent: [rows, hidden] -> [rows, width].
  at::Tensor operator()(const at::Tensor& states) const;

 private:
  std::optional<layers::Linear> dense_;
  std::optional<policy::Activation> activation_;
  std::optional<layers::Norm> norm_;
  double scale_;
};

/// The states that a head reads: the last ones of its stack, or a weighted sum of those of all layers.
class HeadStates {
 public:
  HeadStates(const policy::Head&, layers::Loader&);
  at::Tensor operator()(const RequestForward&) const;  ///< [rows, hidden]

 private:
  std::string stack_;
  at::Tensor weights_;  ///< [layers + 1], they add up to 1; undefined: the last states
};

/// Returns `score` of states [rows, hidden] -> [rows, columns], which may be undefined. Scores of a device are copied
/// to the CPU in blocks of rows, because together they would exceed all other memory of the forward pass.
at::Tensor in_pieces(const at::Tensor& states, int64_t columns,
                     const std::function<at::Tensor(const at::Tensor& some)>& score);

/// Returns for each row the place among its tokens of the column that "mc_token_ids" [batch, choices] names; the last
/// column where a request has none. Throws Error{InvalidRequest} for a column of padding.
std::vector<int64_t> read_named_tokens(const StackInput&, RequestTensors&);

class ScoringHead : public Head {
 public:
  /// Scores the states of all requests together, so that the head's matrix is read once.
  void run(std::span<RequestForward>) const final;

  /// Refuses the last state of a row that ends in dense vectors.
  template <typename Spec>
  static void validate(const policy::Model& model, const policy::Head& head, const Spec&) {
    const policy::Stack* stack = model.stack(head.stack);
    if (stack && stack->input.features && head.pool() == policy::Pool::Last)
      policy::refuse_architecture(model, "pools the last of tokens and dense vectors");
    const bool tokens_alone = stack && stack->input.token && !stack->input.features && !stack->input.entities &&
                              !policy::changes_rows(*stack);
    if (head.pool() == policy::Pool::ClsIndex && !tokens_alone)
      policy::refuse_architecture(model, "pools named tokens of rows that are not those of a text alone");
  }
  /// Reads which token of each row a head scores, where the request names it.
  template <typename Spec>
  static void read_inputs(const policy::Model&, const Spec& spec, const StackInput& stack_input,
                          RequestTensors& tensors, Inputs& inputs) {
    if constexpr (requires { spec.pool; })
      if (spec.pool == policy::Pool::ClsIndex) inputs.ends = read_named_tokens(stack_input, tensors);
  }
  template <typename Spec>
  static void add_probe_inputs(const policy::Model&, const policy::Head& head, const Spec&, ProbeInputs& inputs) {
    if (head.pool() == policy::Pool::LastButOne) inputs.tokens = std::max<int64_t>(inputs.tokens, 2);
  }

 protected:
  /// `one_column`: the scores have one column, and the outputs no dimension of classes.
  ScoringHead(const policy::Model& model, const policy::Head& head, layers::Loader& loader, bool one_column)
      : Head(model, head), states_(head, loader), one_column_(one_column) {}
  /// Returns the scores [rows, columns] of states [rows, hidden]; undefined where this rank has none.
  virtual at::Tensor score(const at::Tensor& states, comm::Communicator&) const = 0;
  /// Turns the scores of one request's states into those that the head puts out.
  virtual at::Tensor finish(const RequestForward&, const at::Tensor& /*states*/, const at::Tensor& scores) const {
    return scores;
  }

 private:
  /// Returns whether a request wants the scores of the last token of each row and of no other.
  bool scores_last_alone(const RequestForward&) const;
  at::Tensor states(const RequestForward&) const;
  void put(RequestForward&, at::Tensor scores) const;
  void put_streams(RequestForward&, const StackInput&, const at::Tensor& scores) const;
  HeadStates states_;
  bool one_column_;
};

/// A head that scores the tokens of a vocabulary, by which text is generated.
class VocabularyHead : public ScoringHead {
 public:
  /// Returns the scores [rows, vocabulary] of states [rows, hidden] on rank 0; undefined elsewhere.
  virtual at::Tensor scores(const at::Tensor& states, comm::Communicator&) const = 0;
  /// Returns the tokens [rows] int64 with the highest scores on rank 0; undefined elsewhere.
  virtual at::Tensor best(const at::Tensor& states, comm::Communicator&) const;

 protected:
  using ScoringHead::ScoringHead;
};

}  // namespace pm::models
