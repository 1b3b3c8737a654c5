// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/chunk_attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace pm::ops {

namespace {

/// What transformers puts in place of scores: of keys that are hidden, and of a query's own key. Both stay finite, so
/// that a query that sees nothing else sees itself.
constexpr double hidden_score = -1e9, own_score = -1e5;
/// The number of scores that are held at once, and of elements of keys that are gathered for single queries.
constexpr int64_t most_scores = int64_t{1} << 22, most_elements = int64_t{1} << 22;

/// Returns, for each chunk, the chunks that its queries see: [chunks, before + 1 + after] int64. A step beyond the
/// number of chunks ends where it began, as in transformers.
at::Tensor neighbors(int64_t chunks, int64_t before, int64_t after) {
  std::vector<int64_t> steps;
  for (int64_t step = -before; step <= after; ++step) steps.push_back(std::clamp(step, -chunks, chunks) + chunks);
  return (at::arange(chunks).unsqueeze(1) + at::tensor(steps, at::kLong).unsqueeze(0)).remainder(chunks);
}

/// Tokens in the order in which they are cut into chunks.
struct Slots {
  at::Tensor tokens;  ///< [heads, slots] int64: the number of a token; that behind the last one for padding
  int64_t chunk;      ///< slots of a chunk
  int64_t before, after;
  bool hides_own;
};

struct Attended {
  at::Tensor out;     ///< [heads, slots, d]
  at::Tensor logits;  ///< [heads, slots]: the logarithm of the sum of exponentials of the scores
};

/// Returns rows [heads, tokens, d] with a row of zeros behind them, which stands for padding.
at::Tensor with_padding(const at::Tensor& rows) { return at::constant_pad_nd(rows.transpose(0, 1), {0, 0, 0, 1}); }

/// Takes rows [heads, tokens, d] by numbers [heads, any...] -> [heads, any..., d].
at::Tensor taken(const at::Tensor& rows, const at::Tensor& numbers) {
  const int64_t d = rows.size(2);
  std::vector<int64_t> shape = numbers.sizes().vec();
  shape.push_back(d);
  const at::Tensor flat = numbers.flatten(1);
  return at::gather(rows, 1, flat.unsqueeze(2).expand({flat.size(0), flat.size(1), d})).reshape(shape);
}

Attended attend(const ChunkSequence& s, const Slots& slots) {
  const at::Tensor q = with_padding(s.q), k = with_padding(s.k), v = with_padding(s.v);
  const at::Tensor columns = at::constant_pad_nd(s.columns, {0, 1});
  const int64_t heads = q.size(0), tokens = s.q.size(0), d = v.size(2), chunks = slots.tokens.size(1) / slots.chunk;
  const at::Tensor by_chunk = slots.tokens.reshape({heads, chunks, slots.chunk});
  const at::Tensor seen = neighbors(chunks, slots.before, slots.after).to(q.device());
  const int64_t width = seen.size(1) * slots.chunk;
  const int64_t step = std::max<int64_t>(1, most_scores / (heads * slots.chunk * width));
  Attended made{at::empty({heads, chunks, slots.chunk, d}, q.options()),
                at::empty({heads, chunks, slots.chunk}, q.options())};
  for (int64_t begin = 0; begin < chunks; begin += step) {
    const int64_t count = std::min(step, chunks - begin);
    const at::Tensor queries = by_chunk.narrow(1, begin, count);
    const at::Tensor keys =
        at::index_select(by_chunk, 1, seen.narrow(0, begin, count).flatten()).reshape({heads, count, width});
    at::Tensor scores = at::matmul(taken(q, queries), taken(k, keys).transpose(2, 3));
    const at::Tensor key = keys.unsqueeze(2), query = queries.unsqueeze(3);
    at::Tensor hidden = key == tokens;
    if (s.causal) hidden = at::logical_or(hidden, columns.take(query) < columns.take(key));
    scores.masked_fill_(hidden, hidden_score);
    if (slots.hides_own) scores.masked_fill_(query == key, own_score);
    const at::Tensor sums = at::logsumexp(scores, -1, /*keepdim=*/true);
    made.out.narrow(1, begin, count).copy_(at::matmul(at::exp(scores - sums), taken(v, keys)));
    made.logits.narrow(1, begin, count).copy_(sums.squeeze(3));
  }
  made.out = made.out.flatten(1, 2);
  made.logits = made.logits.flatten(1, 2);
  return made;
}

/// Weighs results [heads, rounds, tokens, d] of rounds by the sums of their scores -> [tokens, heads, d].
at::Tensor over_rounds(const at::Tensor& out, const at::Tensor& sums) {
  if (out.size(1) == 1) return out.squeeze(1).transpose(0, 1);
  // not softmax(): of a query that sees nothing but itself the scores are so low that the logarithm is coarse, as it is
  // in transformers
  const at::Tensor weights = at::exp(sums - at::logsumexp(sums, 1, /*keepdim=*/true));
  return (out * weights.unsqueeze(3)).sum(1).transpose(0, 1);
}

/// Returns, for each token from `first` on, the tokens from its begin to itself, and -1 behind them:
/// [heads, 1, tokens, most] int64.
at::Tensor everything_from(const std::vector<int64_t>& begins, int64_t first, const ChunkSequence& s) {
  const auto count = static_cast<int64_t>(begins.size());
  const at::Tensor begin = at::tensor(begins, at::kLong), own = at::arange(first, first + count);
  const int64_t most = count == 0 ? 0 : (own - begin).max().item<int64_t>() + 1;
  at::Tensor seen = begin.unsqueeze(1) + at::arange(most).unsqueeze(0);
  seen.masked_fill_(seen > own.unsqueeze(1), -1);
  return seen.to(s.q.device()).expand({s.q.size(1), 1, count, most});
}

/// The tokens of a sequence in the order of their buckets, in each round.
class SortedTokens {
 public:
  SortedTokens(const ChunkSequence& s, const at::Tensor& buckets) : s_(s), tokens_(s.q.size(0)) {
    const at::Tensor numbers = at::arange(tokens_, buckets.options());
    order_ = at::argsort(buckets * tokens_ + numbers, -1, false);
    place_ = at::empty_like(order_).scatter_(2, order_, numbers.expand(order_.sizes()));
  }

  /// Returns the number of tokens that one sees, of which several may be the same.
  int64_t width() const { return s_.chunk * (1 + s_.before + s_.after); }

  /// Returns what each of the tokens first, ..., first + count - 1 sees when it is the last: [heads, rounds, count,
  /// width] int64.
  at::Tensor seen(int64_t first, int64_t count) const {
    const at::Tensor own = at::arange(first, first + count, order_.options()).view({1, 1, count, 1});
    const at::Tensor among = order_.unsqueeze(2) <= own, rank = at::cumsum(among, 3) - 1;
    // tokens that come later fall into a last column, which nothing reads
    at::Tensor sorted = at::empty({order_.size(0), order_.size(1), count, tokens_ + 1}, order_.options());
    sorted.scatter_(3, at::where(among, rank, tokens_), order_.unsqueeze(2).expand(rank.sizes()));
    const at::Tensor place = at::gather(rank, 3, place_.narrow(2, first, count).unsqueeze(3));
    const at::Tensor begin = (place.div(s_.chunk, "floor") - s_.before) * s_.chunk;
    return at::gather(sorted, 3, (begin + at::arange(width(), order_.options())).remainder(own + 1));
  }

 private:
  const ChunkSequence& s_;
  int64_t tokens_;
  at::Tensor order_, place_;  ///< [heads, rounds, tokens]: which token is at a place; the place of each token
};

/// A range of tokens.
struct Queries {
  int64_t begin, end;
};

/// Attends from each of these tokens to those that `members(first, count)` names for a run of them [heads, rounds,
/// count, any], -1: none. `width` bounds what is held for one token of a round. Returns [tokens, heads, d].
template <typename Members>
at::Tensor one_by_one(const ChunkSequence& s, Queries queries, int64_t rounds, int64_t width, const Members& members,
                      bool hides_own) {
  const at::Tensor q = s.q.transpose(0, 1), k = s.k.transpose(0, 1), v = s.v.transpose(0, 1);
  const int64_t heads = q.size(0), d = v.size(2);
  const int64_t step = std::max<int64_t>(1, most_elements / std::max<int64_t>(1, heads * rounds * width * d));
  std::vector<at::Tensor> results{s.q.new_empty({0, heads, d})};
  for (int64_t first = queries.begin; first < queries.end; first += step) {
    const int64_t count = std::min(step, queries.end - first);
    const at::Tensor keys = members(first, count), known = keys.clamp_min(0);
    const at::Tensor query = q.narrow(1, first, count).unsqueeze(1).unsqueeze(4);  // [heads, 1, count, d, 1]
    at::Tensor scores = at::matmul(taken(k, known), query).squeeze(4);
    const at::Tensor own = at::arange(first, first + count, keys.options()).unsqueeze(1);
    if (hides_own) scores.masked_fill_(keys == own, own_score);
    scores.masked_fill_(keys < 0, -std::numeric_limits<double>::infinity());
    const at::Tensor sums = at::logsumexp(scores, -1, /*keepdim=*/true);
    const at::Tensor out = at::matmul(at::exp(scores - sums).unsqueeze(3), taken(v, known)).squeeze(3);
    results.push_back(over_rounds(out, sums.squeeze(3)));
  }
  return at::cat(results);
}

/// Returns all tokens in one chunk.
Slots whole(const ChunkSequence& s, bool hides_own) {
  const int64_t tokens = s.q.size(0), heads = s.q.size(1);
  return {at::arange(tokens, s.columns.options()).expand({heads, tokens}), tokens, 0, 0, hides_own};
}

}  // namespace

HashRotations draw_rotations(int64_t seed, int64_t heads, int64_t d, int64_t rounds, std::vector<int64_t> factors,
                             int64_t first, int64_t count) {
  const int64_t sum = std::accumulate(factors.begin(), factors.end(), int64_t{0});
  const at::Tensor all =
      at::randn({heads, d, rounds, sum / 2}, at::detail::createCPUGenerator(static_cast<uint64_t>(seed)),
                at::TensorOptions(at::kFloat));
  return {all.narrow(0, first, count).flatten(2).contiguous(), std::move(factors), rounds};
}

at::Tensor hash_buckets(const at::Tensor& vectors, const HashRotations& rotations) {
  const at::Tensor rotated = at::bmm(vectors, rotations.matrix)
                                 .reshape({vectors.size(0), vectors.size(1), rotations.rounds, -1})
                                 .transpose(1, 2);
  at::Tensor buckets;
  int64_t begin = 0, place = 1;
  for (const int64_t factor : rotations.factors) {
    const at::Tensor part = rotated.narrow(3, begin, factor / 2);
    const at::Tensor digit = at::argmax(at::cat({part, -part}, 3), 3);
    buckets = buckets.defined() ? buckets + place * digit : digit;
    begin += factor / 2;
    place *= factor;
  }
  return buckets;
}

at::Tensor attend_in_chunks(const ChunkSequence& s) {
  if (s.padded <= s.chunk) return attend(s, whole(s, false)).out.transpose(0, 1);
  const int64_t tokens = s.q.size(0), heads = s.q.size(1);
  at::Tensor places = at::full({s.padded}, tokens, s.columns.options());
  places.index_copy_(0, s.columns, at::arange(tokens, s.columns.options()));
  const Attended made = attend(s, {places.expand({heads, s.padded}), s.chunk, s.before, s.after, false});
  return at::index_select(made.out, 1, s.columns).transpose(0, 1);
}

at::Tensor attend_by_hashes(const ChunkSequence& s, const at::Tensor& buckets) {
  if (!buckets.defined()) return attend(s, whole(s, true)).out.transpose(0, 1);
  const int64_t tokens = s.q.size(0), heads = s.q.size(1), rounds = buckets.size(1), d = s.v.size(2);
  // tokens of a bucket keep their order
  const at::Tensor order = at::argsort(buckets * tokens + at::arange(tokens, buckets.options()), -1, false);
  const at::Tensor slots = at::constant_pad_nd(order, {0, s.padded - tokens}, tokens).flatten(1);
  const Attended made = attend(s, {slots, s.chunk, s.before, s.after, true});
  const auto of_tokens = [&](const at::Tensor& rows) {
    return rows.unflatten(1, {rounds, s.padded}).narrow(2, 0, tokens);
  };
  const at::Tensor sorted = of_tokens(made.out), logits = of_tokens(made.logits);
  const at::Tensor out = at::empty(sorted.sizes(), sorted.options())
                             .scatter_(2, order.unsqueeze(3).expand({heads, rounds, tokens, d}), sorted);
  return over_rounds(out, at::empty(logits.sizes(), logits.options()).scatter_(2, order, logits));
}

at::Tensor attend_one_by_one(const ChunkSequence& s, int64_t known) {
  const auto members = [&](int64_t first, int64_t count) {
    std::vector<int64_t> begins;
    for (int64_t token = first; token < first + count; ++token) {
      const int64_t begin = (token / s.chunk - s.before) * s.chunk;
      begins.push_back(begin < 0 ? std::max<int64_t>(0, token + begin) : begin);
    }
    return everything_from(begins, first, s);
  };
  return one_by_one(s, {known, s.q.size(0)}, 1, (s.before + 2) * s.chunk, members, /*hides_own=*/false);
}

at::Tensor attend_by_hashes_one_by_one(const ChunkSequence& s, const at::Tensor& buckets, int64_t known,
                                       int64_t sorted_from) {
  const int64_t tokens = s.q.size(0), whole = std::clamp(sorted_from, known, tokens);
  const auto all = [&](int64_t first, int64_t count) {
    return everything_from(std::vector<int64_t>(static_cast<size_t>(count), 0), first, s);
  };
  const at::Tensor unsorted = one_by_one(s, {known, whole}, 1, whole, all, /*hides_own=*/true);
  if (whole == tokens) return unsorted;
  const SortedTokens sorted(s, buckets);
  const at::Tensor by_hashes = one_by_one(
      s, {whole, tokens}, buckets.size(1), std::max(sorted.width(), tokens),
      [&](int64_t first, int64_t count) { return sorted.seen(first, count); }, /*hides_own=*/true);
  return at::cat({unsorted, by_hashes});
}

}  // namespace pm::ops
