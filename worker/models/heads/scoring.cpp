// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/scoring.h"

#include <ATen/ATen.h>

#include "worker/layers/feed_forward/mlp.h"
#include "worker/models/requests/entities.h"

namespace pm::models {

HeadTransform::HeadTransform(const policy::HeadTransform& transform, layers::Loader& loader)
    : activation_(transform.activation), scale_(transform.scale) {
  if (transform.dense) dense_.emplace(*transform.dense, loader);
  if (transform.norm) norm_.emplace(*transform.norm, loader);
}

at::Tensor HeadTransform::operator()(const at::Tensor& states) const {
  at::Tensor x = layers::activate(activation_, dense_ ? (*dense_)(states) : states);
  if (norm_) x = (*norm_)(x);
  return scale_ == 1 ? x : x * scale_;
}

HeadStates::HeadStates(const policy::Head& head, layers::Loader& loader) : stack_(head.stack) {
  if (head.layer_weights) weights_ = at::softmax(loader.load(*head.layer_weights).to(at::kFloat), 0);
}

at::Tensor HeadStates::operator()(const RequestForward& request) const {
  if (!weights_.defined()) return request.states.at(stack_);
  const std::vector<at::Tensor>& all = request.hidden.at(stack_);
  at::Tensor sum = at::zeros_like(all[0]);
  for (size_t i = 0; i < all.size(); ++i) sum.addcmul_(all[i], weights_[static_cast<int64_t>(i)]);
  return sum;
}

at::Tensor in_pieces(const at::Tensor& states, int64_t columns,
                     const std::function<at::Tensor(const at::Tensor& some)>& score) {
  constexpr int64_t most = int64_t{1} << 22;  // of a block
  if (states.device().is_cpu()) return score(states);
  const int64_t rows = states.size(0), piece = std::max<int64_t>(1, most / (columns + 1));
  std::vector<at::Tensor> pieces;
  for (int64_t row = 0; row < rows; row += piece) {
    const at::Tensor some = score(states.narrow(0, row, std::min(piece, rows - row)));
    if (some.defined()) pieces.push_back(some.cpu());
  }
  return pieces.empty() ? at::Tensor() : at::cat(pieces);
}

std::vector<int64_t> read_named_tokens(const StackInput& stack_input, RequestTensors& tensors) {
  const std::string name = "mc_token_ids";
  const at::Tensor given = tensors.tensor(name, 1, "[batch, choices]");
  if (given.defined()) {
    if (at::isFloatingType(given.scalar_type())) refuse(name + " has fractional values, expected integers");
    if (given.size(0) != stack_input.rows)
      refuse(name + " names " + std::to_string(given.size(0)) + " tokens, expected one for each of " +
             std::to_string(stack_input.rows) + " rows of input_ids");
    check_range(name, given, 0, stack_input.length, "columns of input_ids");
  }
  std::vector<int64_t> places;
  for (int64_t row = 0; row < stack_input.rows; ++row) {
    const int64_t column = given.defined() ? given[row].item<int64_t>() : stack_input.length - 1;
    const at::Tensor place = (stack_input.columns[static_cast<size_t>(row)] == column).nonzero();
    if (place.numel() == 0)
      refuse("row " + std::to_string(row) + " of input_ids has padding in column " + std::to_string(column) +
             (given.defined() ? ", which " + name + " names" : ", the last one; name a token by " + name));
    places.push_back(place.item<int64_t>());
  }
  return places;
}

void ScoringHead::run(std::span<RequestForward> requests) const {
  std::vector<RequestForward*> with;
  std::vector<at::Tensor> all;
  for (RequestForward& request : requests) {
    if (!needs_head(model_, head_, request)) continue;
    with.push_back(&request);
    all.push_back(states(request));
  }
  if (with.empty()) return;
  const at::Tensor scores = score(all.size() == 1 ? all[0] : at::cat(all), with[0]->comm);
  int64_t row = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    const int64_t rows = all[i].size(0);
    put(*with[i], finish(*with[i], all[i], scores.defined() ? scores.narrow(0, row, rows) : scores));
    row += rows;
  }
}

bool ScoringHead::scores_last_alone(const RequestForward& request) const {
  return wants_last_logits(model_, head_, request) && !request.wants_any(head_.outputs);
}

/// Returns the states that the head scores: every token's, or one per sequence.
at::Tensor ScoringHead::states(const RequestForward& request) const {
  if (head_.streams) {
    const std::vector<at::Tensor>& streams = request.streams.at(head_.stack);
    return request.wants(head_.outputs[1], true) ? at::cat(streams) : streams[0];
  }
  const at::Tensor of_stack = states_(request);
  if (scores_last_alone(request)) return request.select(policy::Pool::Last, *model_.stack(head_.stack), of_stack);
  if (head_.entities) return entity_states(*head_.entities, request.inputs.stack_inputs.at(head_.stack), of_stack);
  const std::optional<policy::Pool> pool = head_.pool();
  if (!pool) {
    const policy::Stack& stack = *model_.stack(head_.stack);
    return stack.input.entities ? token_states(request.inputs.stack_inputs.at(head_.stack), of_stack) : of_stack;
  }
  return pool == policy::Pool::Pooler ? request.pooled.at(head_.stack)
                                      : request.select(*pool, *model_.stack(head_.stack), of_stack);
}

/// Puts out the scores [streams x tokens, columns] by the first stream, and those by the others, [rows, streams - 1,
/// length, columns].
void ScoringHead::put_streams(RequestForward& request, const StackInput& stack_input, const at::Tensor& scores) const {
  std::vector<at::Tensor> padded;
  for (const at::Tensor& of_stream : scores.split(stack_input.batch_rows()))
    padded.push_back(stack_input.padded(of_stream));
  if (request.wants(head_.outputs[0], true)) request.put(head_.outputs[0], padded[0]);
  padded.erase(padded.begin());
  if (!padded.empty()) request.put(head_.outputs[1], at::stack(padded, 1));
}

namespace {

/// Returns the padded scores of targets where a request has some, else those of all tokens.
at::Tensor of_targets(const StackInput& stack_input, const at::Tensor& padded) {
  const int64_t tokens = stack_input.tokens;
  return stack_input.has_targets ? padded.narrow(1, tokens, stack_input.length - tokens) : padded;
}

}  // namespace

void ScoringHead::put(RequestForward& request, at::Tensor scores) const {
  const bool pooled = head_.is_pooled();
  if (pooled) request.vectors[head_.name] = scores;
  if (request.comm.rank() != 0) return;
  if (scores_last_alone(request)) return request.put(last_logits, scores);
  if (wants_last_logits(model_, head_, request))
    request.put(last_logits, request.select(policy::Pool::Last, *model_.stack(head_.stack), scores));
  // a similarity puts out the vectors that it compares
  if (is_compared(model_, head_.name) || !request.wants_any(head_.outputs)) return;
  const StackInput& stack_input = request.inputs.rows_of(head_.stack);
  if (head_.streams) return put_streams(request, stack_input, scores);
  if (!pooled)
    scores = model_.stack(head_.stack)->input.entities ? padded_part(stack_input, scores, head_.entities.has_value())
                                                       : of_targets(stack_input, stack_input.padded(scores));
  const auto* classes = head_.as<policy::ClassesSpec>();
  if (classes && classes->per_pixel) {
    const at::Tensor& cells = request.inputs.stack_inputs.at(head_.stack).batch.pictures.at(0).cells;
    scores = scores.reshape({cells.size(0), cells.size(1), cells.size(2), -1});
  }
  const int64_t choices = request.inputs.choices;
  if (choices > 0) scores = pooled ? scores.reshape({-1, choices}) : scores.unflatten(0, {-1, choices});
  if (choices == 0 && head_.pool() == policy::Pool::ClsIndex) scores = scores.select(-1, 0);  // of each row alone
  if (one_column_) scores = scores.select(-1, 0);
  if (head_.outputs.size() == 1) return request.put(head_.outputs[0], scores);
  for (size_t i = 0; i < head_.outputs.size(); ++i)
    request.put(head_.outputs[i], scores.select(-1, static_cast<int64_t>(i)));
}

at::Tensor VocabularyHead::best(const at::Tensor& states, comm::Communicator& comm) const {
  const at::Tensor all = scores(states, comm);
  return all.defined() ? at::argmax(all, 1) : at::Tensor();
}

}  // namespace pm::models
