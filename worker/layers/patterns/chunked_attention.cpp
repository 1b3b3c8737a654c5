// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/chunked_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>
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

ops::ChunkSequence ChunkedAttention::sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  return {.q = q,
          .k = k,
          .v = v,
          .columns = at::arange(q.size(0)).to(q.device()),
          .padded = chunks_.padded(q.size(0)),
          .chunk = chunks_.length,
          .before = chunks_.before,
          .after = chunks_.after,
          .causal = causal_};
}

/// Attends in a sequence whose tokens came together.
at::Tensor ChunkedAttention::at_once(const ops::ChunkSequence& sequence) const {
  if (!hashes()) return ops::attend_in_chunks(sequence);
  at::Tensor buckets;
  if (sequence.padded > chunks_.length) {
    const at::Tensor vectors = sequence.q.transpose(0, 1);
    if (rotations_) {
      buckets = ops::hash_buckets(vectors, *rotations_);
    } else {
      ops::HashRotations drawn = rotations(chunks_.hashes->buckets_of(sequence.padded, chunks_.length));
      drawn.matrix = drawn.matrix.to(sequence.q.device());
      buckets = ops::hash_buckets(vectors, drawn);
    }
  }
  return ops::attend_by_hashes(sequence, buckets);
}

/// Returns the buckets [heads, rounds, tokens] by which steps sort the tokens of a sequence. As in transformers,
/// buckets of a later round are counted on from those of the earlier ones. Where the prompt was padded, padding has a
/// bucket of its own in each round, so that tokens of the prompt are moved by one for each earlier round; those of
/// later steps are moved likewise only if a bucket of the prompt, of any head, is so high that it shows the padding.
at::Tensor ChunkedAttention::compared_buckets(const at::Tensor& vectors, int64_t prompt,
                                              comm::Communicator& comm) const {
  at::Tensor buckets = ops::hash_buckets(vectors, *rotations_);
  const int64_t padded = chunks_.padded(prompt), rounds = chunks_.hashes->rounds;
  if (rounds == 1 || padded == prompt || padded <= chunks_.length) return buckets;
  const std::vector<int64_t>& factors = chunks_.hashes->buckets;
  const int64_t count = std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>());
  const at::Tensor moved = at::arange(rounds, buckets.options()).unsqueeze(1);
  const at::Tensor first = buckets.narrow(2, 0, prompt), numbers = first + moved * (count + 1);
  at::Tensor shows = (numbers > rounds * count - 1).any().to(at::kFloat).reshape({1});
  if (comm.size() > 1) comm.all_reduce(shows, comm::Op::Max);
  if (shows.item<float>() > 0) return buckets + moved;
  return at::cat({first + moved, buckets.narrow(2, prompt, buckets.size(2) - prompt)}, 2);
}

/// Attends from the tokens behind a prompt. With hashes, transformers' cache has buckets once a prompt, or the
/// sequence before this token, is longer than a chunk; until then a token sees all before it.
at::Tensor ChunkedAttention::one_by_one(const ops::ChunkSequence& sequence, int64_t prompt,
                                        comm::Communicator& comm) const {
  if (!hashes()) return ops::attend_one_by_one(sequence, prompt);
  const int64_t sorted_from = chunks_.padded(prompt) > chunks_.length ? prompt : std::max(prompt + 1, chunks_.length);
  at::Tensor buckets;
  if (sorted_from < sequence.q.size(0)) buckets = compared_buckets(sequence.q.transpose(0, 1), prompt, comm);
  return ops::attend_by_hashes_one_by_one(sequence, buckets, prompt, sorted_from);
}

at::Tensor ChunkedAttention::operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const Batch& batch, comm::Communicator& comm) const {
  const at::Tensor queries = q.to(at::kFloat), values = v.to(at::kFloat),
                   keys = hashes() ? normed(queries, scale_) : k.to(at::kFloat) * scale_;
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
    const ops::SequenceSpan& span = batch.sequences.spans[i];
    const auto first = [&](int64_t count) {
      return sequence(queries.narrow(0, span.first, count), keys.narrow(0, span.first, count),
                      values.narrow(0, span.first, count));
    };
    const int64_t prompt = batch.prompts.empty() ? span.tokens : batch.prompts[i];
    ops::ChunkSequence together = first(prompt);
    if (!batch.columns.empty()) {
      const std::vector<int64_t>& places = batch.columns[i].columns;
      if (!places.empty()) together.columns = at::tensor(places, at::kLong).to(queries.device());
      together.padded = chunks_.padded(batch.columns[i].length);
    }
    results.push_back(at_once(together));
    if (prompt < span.tokens) results.push_back(one_by_one(first(span.tokens), prompt, comm));
  }
  return at::cat(results).to(q.scalar_type());
}

}  // namespace pm::layers
