// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/chunked_attention.h"

#include <ATen/ATen.h>

#include <vector>

namespace pm::layers {

namespace {

/// What is added to the mean of squares of a vector before its root.
constexpr double length_eps = 1e-6;

/// Returns vectors of length sqrt(d), times `scale`.
at::Tensor normed(const at::Tensor& x, double scale) {
  return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + length_eps) * scale;
}

}  // namespace

ChunkedAttention::ChunkedAttention(const policy::Attention& attention, const Loader& loader)
    : chunks_(*attention.chunks),
      scale_(attention.scale),
      causal_(attention.mask == policy::Mask::Causal),
      all_heads_(attention.heads),
      head_dim_(attention.head_dim),
      heads_(loader.range(attention.query.weight)) {
  if (!chunks_.hashes || chunks_.hashes->buckets.empty()) return;
  rotations_ = rotations(chunks_.hashes->buckets);
  rotations_->matrix = rotations_->matrix.to(loader.device());
}

ops::HashRotations ChunkedAttention::rotations(const std::vector<int64_t>& factors) const {
  const policy::Hashes& hashes = *chunks_.hashes;
  return ops::draw_rotations(hashes.seed, all_heads_, head_dim_, hashes.rounds, factors, heads_.begin, heads_.size());
}

at::Tensor ChunkedAttention::operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const Batch& batch) const {
  const at::Tensor queries = q.to(at::kFloat), values = v.to(at::kFloat),
                   keys = hashes() ? normed(queries, scale_) : k.to(at::kFloat) * scale_;
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
    const ops::SequenceSpan& span = batch.sequences.spans[i];
    const auto own = [&](const at::Tensor& rows) { return rows.narrow(0, span.first, span.tokens); };
    const std::vector<int64_t>* places = batch.columns.empty() ? nullptr : &batch.columns[i].columns;
    const int64_t length = batch.columns.empty() ? span.tokens : batch.columns[i].length;
    const ops::ChunkSequence sequence{
        .q = own(queries),
        .k = own(keys),
        .v = own(values),
        .columns = (places && !places->empty() ? at::tensor(*places, at::kLong) : at::arange(span.tokens))
                       .to(queries.device()),
        .padded = chunks_.padded(length),
        .chunk = chunks_.length,
        .before = chunks_.before,
        .after = chunks_.after,
        .causal = causal_};
    if (!hashes()) {
      results.push_back(ops::attend_in_chunks(sequence));
      continue;
    }
    at::Tensor buckets;
    if (sequence.padded > chunks_.length) {
      const at::Tensor vectors = sequence.q.transpose(0, 1);
      if (rotations_) {
        buckets = ops::hash_buckets(vectors, *rotations_);
      } else {
        ops::HashRotations drawn = rotations(chunks_.hashes->buckets_of(sequence.padded, chunks_.length));
        drawn.matrix = drawn.matrix.to(queries.device());
        buckets = ops::hash_buckets(vectors, drawn);
      }
    }
    results.push_back(ops::attend_by_hashes(sequence, buckets));
  }
  return at::cat(results).to(q.scalar_type());
}

}  // namespace pm::layers
