// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/cross_block.h"

#include <ATen/ATen.h>

namespace pm::layers {

namespace {

std::optional<Norm> norm_of(const std::optional<policy::Norm>& norm, Loader& loader) {
  return norm ? std::optional<Norm>(std::in_place, *norm, loader) : std::nullopt;
}

at::Tensor normed(const std::optional<Norm>& norm, const at::Tensor& x, at::ScalarType result) {
  return norm ? (*norm)(x, result) : x.to(result);
}

}  // namespace

CrossBlock::CrossBlock(const policy::CrossBlock& block, ActivationTypes types, Loader& loader)
    : types_(types),
      norm_(norm_of(block.attention.norm, loader)),
      source_norm_(norm_of(block.source_norm, loader)),
      attention_(block.attention, loader),
      adds_queries_(block.adds_queries),
      mlp_norm_(norm_of(block.mlp.norm, loader)),
      mlp_(block.mlp, loader) {}

at::Tensor CrossBlock::operator()(const at::Tensor& queries, const at::Tensor& rows, ops::StepSequences sequences,
                                  const Batch& batch, comm::Communicator& comm) const {
  if (!batch.capture || !batch.capture->attentions) ops::make_attention_metadata(sequences, rows.device());
  const Source source{.states = normed(source_norm_, rows, types_.product),
                      .added_positions = {},
                      .slots = {},
                      .sequences = std::move(sequences)};
  const at::Tensor read = normed(norm_, queries, types_.product);
  at::Tensor x = attention_.out()(attention_.cross(read, batch, source, {}, comm), comm, types_.residual);
  Residual state(adds_queries_ ? queries.to(types_.residual) : std::move(x));
  if (adds_queries_) state.add(std::move(x));
  state.add(mlp_(state.normed(mlp_norm_, types_.product), comm, types_.residual));
  return state.sum();
}

std::vector<ops::SequenceSpan> equal_spans(size_t sequences, int64_t count) {
  std::vector<ops::SequenceSpan> spans;
  for (int64_t first = 0; first < static_cast<int64_t>(sequences) * count; first += count)
    spans.push_back({.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
  return spans;
}

ops::StepSequences crossed(const std::vector<ops::SequenceSpan>& queries, const std::vector<ops::SequenceSpan>& keys) {
  ops::StepSequences sequences{.spans = queries, .metadata = {}};
  for (size_t i = 0; i < keys.size(); ++i) {
    sequences.spans[i].keys = keys[i].keys;
    sequences.spans[i].key_row = keys[i].key_row;
  }
  return sequences;
}

Latents::Latents(const policy::Latents& latents, ActivationTypes types, Loader& loader)
    : vectors(latents.vectors, loader), block(latents.block, types, loader) {}

OutputQueries::OutputQueries(const policy::OutputQueries& queries, ActivationTypes types, Loader& loader)
    : vectors(queries.vectors ? std::optional<LearnedRows>(std::in_place, *queries.vectors, loader) : std::nullopt),
      block(queries.block, types, loader) {}

}  // namespace pm::layers
