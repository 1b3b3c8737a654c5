// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/latent_attention.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "contract/latent_tile.h"
#include "worker/layers/patterns/unlike_widths.h"
#include "worker/ops/linear.h"
#include "worker/ops/staging.h"

namespace pm::layers {

namespace {

std::vector<const policy::Linear*> projections_of(const policy::Attention& attention) {
  const policy::LatentAttention& latent = *attention.latent;
  return {latent.query_down ? &*latent.query_down : &attention.query, &latent.down};
}

/// Returns the cached rows of a sequence [keys, width].
at::Tensor cached_rows(const at::Tensor& cache, const ops::SequenceSpan& span) {
  const auto blocks = static_cast<int64_t>(blocks_for(span.keys));
  const at::Tensor table = ops::to_device(
      at::tensor(at::ArrayRef<int32_t>(span.blocks.data(), static_cast<size_t>(blocks)), at::kInt), cache.device());
  return at::index_select(cache, 0, table).reshape({blocks * block_tokens, cache.size(3)}).narrow(0, 0, span.keys);
}

/// Multiplies each head's vectors by its matrix: x [tokens, heads, in], matrices [heads, in, out] -> [tokens, heads,
/// out]. Matrices of another type than x are widened one at a time, so that what is read of memory is the matrix alone.
at::Tensor times_matrices(const at::Tensor& x, const at::Tensor& matrices) {
  const at::ScalarType type = x.scalar_type();
  if (matrices.scalar_type() == type) return at::bmm(x.transpose(0, 1), matrices).transpose(0, 1);
  at::Tensor result = at::empty({x.size(0), x.size(1), matrices.size(2)}, x.options());
  for (int64_t head = 0; head < x.size(1); ++head)
    result.select(1, head).copy_(at::mm(x.select(1, head), matrices.select(0, head).to(type)));
  return result;
}

/// The same with matrices [heads, out, in], by the kernels of linears where types differ.
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& matrices) {
  const at::ScalarType type = x.scalar_type();
  if (matrices.scalar_type() == type) return times_matrices(x, matrices.transpose(1, 2));
  at::Tensor result = at::empty({x.size(0), x.size(1), matrices.size(1)}, x.options());
  for (int64_t head = 0; head < x.size(1); ++head)
    result.select(1, head).copy_(ops::linear(x.select(1, head).contiguous(), matrices.select(0, head), {}, type));
  return result;
}

}  // namespace

/// What a step's tokens are projected to, and the weights by which latents become keys and values.
struct LatentAttention::Step {
  at::Tensor queries;     ///< [tokens, heads, head_dim], the last `rotary_dims` rotated
  at::Tensor rows;        ///< [tokens, 1, width]: normed latents, then the rotated shared key
  at::Tensor key, value;  ///< [heads, rows of a head, rank]
};

LatentAttention::LatentAttention(const policy::Attention& attention, Loader& loader)
    : heads_(loader.range(attention.query.weight).size()),
      own_dims_(attention.head_dim - attention.latent->rotary_dims),
      rotary_dims_(attention.latent->rotary_dims),
      value_dim_(attention.value_dim),
      rank_(attention.latent->rank),
      options_{.scale = attention.scale,
               .causal = attention.mask == policy::Mask::Causal,
               .captures_scores = attention.shows_scores,
               .compute_type = scalar_type(loader.partition().compute_type())},
      in_(projections_of(attention), loader),
      query_norm_(attention.latent->query_norm
                      ? std::optional<Norm>(std::in_place, *attention.latent->query_norm, loader)
                      : std::nullopt),
      query_(
          attention.latent->query_down
              ? std::optional<ColumnLinear>(std::in_place, std::vector<const policy::Linear*>{&attention.query}, loader)
              : std::nullopt),
      norm_(attention.latent->norm, loader),
      key_(loader.weight(attention.key.weight)),
      value_(loader.weight(attention.value.weight)),
      out_(attention.out, loader) {
  for (int rank = 0; rank < loader.partition().ranks(); ++rank)
    heads_of_rank_.push_back(policy::rank_range(attention.query.weight, loader.partition(), rank).size());
}

LatentAttention::Step LatentAttention::project(const at::Tensor& x, const ops::Rotation& rotation) const {
  const int64_t tokens = x.size(0);
  const at::Tensor made = in_(x);
  const int64_t before = made.size(1) - rank_ - rotary_dims_;  // columns of queries
  at::Tensor q = made.narrow(1, 0, before);
  if (query_norm_) q = (*query_norm_)(q.contiguous(), x.scalar_type());
  if (query_) q = (*query_)(q);
  q = q.reshape({tokens, heads_, own_dims_ + rotary_dims_});
  const at::Tensor latent = norm_(made.narrow(1, before, rank_).contiguous(), x.scalar_type()),
                   shared = made.narrow(1, before + rank_, rotary_dims_).unsqueeze(1);
  const auto rotated = [&](const at::Tensor& part) { return ops::rotate(part, rotation.angles, rotation.is_neox); };
  q = at::cat({q.narrow(2, 0, own_dims_), rotated(q.narrow(2, own_dims_, rotary_dims_))}, 2);
  if (rotation.query_factors.defined()) q = (q * rotation.query_factors).to(x.scalar_type());
  return {.queries = std::move(q),
          .rows = at::cat({latent.unsqueeze(1), rotated(shared)}, 2),
          .key = key_.value().view({heads_, own_dims_, rank_}),
          .value = value_.value().view({heads_, value_dim_, rank_})};
}

/// Returns whether keys and values of a cached sequence are better expanded for all its queries than queries and
/// results are made as wide as latents. It compares the products of one head. What decodes is never expanded.
bool LatentAttention::expands(const ops::SequenceSpan& span) const {
  if (span.tokens == 1 || span.drafts) return false;
  const int64_t row = rank_ * (own_dims_ + value_dim_), width = rank_ + rotary_dims_;
  return span.keys * (row + span.tokens * (own_dims_ + rotary_dims_ + value_dim_)) <=
         span.tokens * (row + span.keys * 2 * width);
}

/// Attends to cached latents as one key and one value of all heads: q [tokens, heads, head_dim] -> [tokens, heads,
/// value_dim].
at::Tensor LatentAttention::absorbed(const at::Tensor& q, const Step& step, const ops::StepSequences& sequences,
                                     at::Tensor& cache) const {
  const at::Tensor own = times_matrices(q.narrow(2, 0, own_dims_), step.key),
                   wide = at::cat({own, q.narrow(2, own_dims_, rotary_dims_)}, 2).contiguous(),
                   seen = ops::paged_attention(wide, cache, cache, sequences, options_).narrow(2, 0, rank_);
  return times_transposed(seen, step.value);
}

/// Attends with the queries of one sequence to keys and values that are made of its rows [keys, width]. Several heads
/// at a time bound the memory of both.
at::Tensor LatentAttention::expanded(const at::Tensor& q, const at::Tensor& rows, const Step& step,
                                     const ops::SequenceSpan& span, at::Tensor* probabilities) const {
  const int64_t keys = span.keys;
  ops::StepSequences alone{
      .spans = {{.first = 0, .tokens = span.tokens, .context = span.context, .keys = keys, .key_row = 0, .blocks = {}}},
      .metadata = {}};
  if (!probabilities) ops::make_attention_metadata(alone, q.device());
  const at::Tensor latents = rows.narrow(1, 0, rank_).to(q.scalar_type()).contiguous(),
                   shared = rows.narrow(1, rank_, rotary_dims_).to(q.scalar_type()).unsqueeze(1);
  const int64_t tile = heads_of_latent_tile(heads_, std::max(own_dims_ + rotary_dims_, value_dim_), keys);
  std::vector<at::Tensor> results, seen;
  for (int64_t first = 0; first < heads_; first += tile) {
    const int64_t count = std::min(tile, heads_ - first);
    const auto made = [&](const at::Tensor& weight) {
      const at::Tensor part = weight.narrow(0, first, count).flatten(0, 1);
      return ops::linear(latents, part, {}, q.scalar_type()).view({keys, count, -1});
    };
    const at::Tensor k = at::cat({made(step.key), shared.expand({keys, count, rotary_dims_})}, 2), v = made(step.value);
    std::vector<at::Tensor> of_tile;
    results.push_back(
        attend_unlike(q.narrow(1, first, count), k, v, alone, options_, probabilities ? &of_tile : nullptr));
    if (probabilities) seen.push_back(of_tile.front());
  }
  if (probabilities) *probabilities = at::cat(seen);
  return results.size() == 1 ? results[0] : at::cat(results, 1);
}

at::Tensor LatentAttention::operator()(const at::Tensor& x, const Batch& batch, const ops::Rotation& rotation,
                                       at::Tensor* cache, comm::Communicator& comm) const {
  const Step step = project(x, rotation);
  const std::vector<ops::SequenceSpan>& spans = batch.sequences.spans;
  if (cache) ops::write_kv(step.rows, step.rows, batch.slots, *cache, *cache);
  const auto expand = [&](const ops::SequenceSpan& span) { return !cache || expands(span); };
  if (cache && std::none_of(spans.begin(), spans.end(), expand))
    return absorbed(step.queries, step, batch.sequences, *cache).reshape({x.size(0), heads_ * value_dim_});
  const bool captures = batch.capture && batch.capture->attentions;
  std::vector<at::Tensor> probabilities;
  at::Tensor result = at::empty({x.size(0), heads_, value_dim_}, x.options());
  for (const ops::SequenceSpan& span : spans) {
    const at::Tensor q = step.queries.narrow(0, span.first, span.tokens);
    at::Tensor target = result.narrow(0, span.first, span.tokens);
    if (expand(span)) {
      const at::Tensor rows =
          cache ? cached_rows(*cache, span) : step.rows.narrow(0, span.key_row, span.keys).squeeze(1);
      at::Tensor seen;
      target.copy_(expanded(q, rows, step, span, captures ? &seen : nullptr));
      if (captures) probabilities.push_back(comm.gatherv(seen.contiguous(), heads_of_rank_, 0));
      continue;
    }
    ops::StepSequences alone{.spans = {span}, .metadata = {}};
    alone.spans[0].first = 0;
    ops::make_attention_metadata(alone, x.device());
    target.copy_(absorbed(q, step, alone, *cache));
  }
  if (captures) batch.capture->attention.push_back(std::move(probabilities));
  return result.reshape({x.size(0), heads_ * value_dim_});
}

}  // namespace pm::layers
