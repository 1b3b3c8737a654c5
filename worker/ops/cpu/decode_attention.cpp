// SPDX-License-Identifier: Apache-2.0
// Splits decode attention over the thread pool and combines the partial results.
#include "worker/ops/cpu/decode_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {

namespace {

constexpr int64_t max_heads = 8;  // of one kernel call; more query heads of a kv head make several calls
constexpr int64_t products_per_chunk = int64_t{1} << 16;  // takes some microseconds

/// The arguments of one kernel call, and the row of its partial result.
struct Piece {
  size_t query;
  int64_t head, heads, from, to;  ///< query heads, keys
  int64_t part;                   ///< row of the partial results [parts, d]; -1: the only piece of its heads
};

/// All heads of one query whose keys were split.
struct Joined {
  int64_t row;            ///< of out [tokens x heads, d], of head 0
  int64_t first, pieces;  ///< head h of piece p is part first + p * heads + h
};

class Decode {
 public:
  Decode(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
         std::span<const SingleQuery> queries, const AttentionOptions& options, at::Tensor& out)
      : q_(q.contiguous()),
        queries_(queries),
        window_(options.window),
        sinks_(options.sinks.defined() ? options.sinks.contiguous() : at::Tensor()),
        out_(out.mutable_data_ptr<float>()) {
    heads_ = q.size(1);
    group_ = heads_ / k_cache.size(1);
    d_ = q.size(2);
    whole_.type = element(k_cache.scalar_type());
    whole_.d = d_;
    whole_.block_stride = k_cache.stride(0);
    whole_.scale = static_cast<float>(options.scale);
    whole_.softcap = static_cast<float>(options.softcap);
    whole_.bf16 = options.compute_type == at::kBFloat16;
    keys_ = static_cast<const char*>(k_cache.const_data_ptr());
    values_ = static_cast<const char*>(v_cache.const_data_ptr());
    head_bytes_ = k_cache.stride(1) * k_cache.element_size();
    for (size_t i = 0, end = 0; i < queries.size(); i = end) {
      while (end < queries.size() && queries[end].blocks.data() == queries[i].blocks.data()) ++end;
      divide(i, end);
    }
    partial_.resize(static_cast<size_t>(parts_ * (d_ + 2)));
  }

  void run() {
    int64_t products = 0;
    for (const Piece& piece : pieces_) products += piece.heads * (piece.to - piece.from) * d_;
    const auto count = static_cast<int64_t>(pieces_.size());
    const int64_t chunks = std::clamp<int64_t>(products / products_per_chunk, 1, count);
    thread_pool().parallel_for(chunks, [&](int64_t chunk) {
      for (int64_t i = count * chunk / chunks; i < count * (chunk + 1) / chunks; ++i)
        attend(pieces_[static_cast<size_t>(i)]);
    });
    if (joined_.empty()) return;
    thread_pool().parallel_for(static_cast<int64_t>(joined_.size()) * heads_,
                               [&](int64_t i) { join(joined_[static_cast<size_t>(i / heads_)], i % heads_); });
  }

 private:
  int64_t hidden(const SingleQuery& query) const {
    return window_ > 0 ? std::max<int64_t>(0, query.position + 1 - window_) : 0;
  }
  int64_t first_key(const SingleQuery& query) const { return hidden(query) / block_tokens * block_tokens; }
  int64_t splits(const SingleQuery& query) const {
    return (query.keys - first_key(query) + max_attend_keys - 1) / max_attend_keys;
  }

  /// Divides queries [begin, end) of one sequence. Those that read the same keys follow each other.
  void divide(size_t begin, size_t end) {
    std::vector<int64_t> parts;  // of each query, the row of its first partial result
    int64_t most = 0;
    for (size_t i = begin; i < end; ++i) {
      const int64_t count = splits(queries_[i]);
      parts.push_back(parts_);
      most = std::max(most, count);
      if (count < 2) continue;
      joined_.push_back({queries_[i].row * heads_, parts_, count});
      parts_ += count * heads_;
    }
    for (int64_t split = 0; split < most; ++split) {
      for (int64_t kv = 0; kv < heads_; kv += group_) {
        for (size_t i = begin; i < end; ++i) {
          if (split < splits(queries_[i])) divide(i, kv, split, parts[i - begin] + split * heads_);
        }
      }
    }
  }

  /// Divides the query heads of one kv head for one split of the keys, whose partial results begin with row `part`.
  void divide(size_t which, int64_t kv, int64_t split, int64_t part) {
    const SingleQuery& query = queries_[which];
    const int64_t from = first_key(query) + split * max_attend_keys, to = std::min(query.keys, from + max_attend_keys);
    const bool only = splits(query) == 1;
    for (int64_t head = kv; head < kv + group_; head += max_heads)
      pieces_.push_back({which, head, std::min(max_heads, kv + group_ - head), from, to, only ? -1 : part + head});
  }

  float* part(int64_t row) { return partial_.data() + row * d_; }
  float* largest(int64_t row) { return partial_.data() + parts_ * d_ + row; }
  float* sums(int64_t row) { return largest(row) + parts_; }

  void attend(const Piece& piece) {
    const SingleQuery& query = queries_[piece.query];
    const int64_t row = query.row * heads_ + piece.head, kv = piece.head / group_;
    float own_largest[max_heads], own_sums[max_heads];
    const bool only = piece.part < 0;
    Attend a = whole_;
    a.heads = piece.heads;
    a.q = q_.const_data_ptr<float>() + row * d_;
    a.keys = keys_ + kv * head_bytes_;
    a.values = values_ + kv * head_bytes_;
    a.blocks = query.blocks.data();
    a.from = piece.from;
    a.to = piece.to;
    a.hidden = hidden(query);
    a.bias = query.bias.defined() ? query.bias.const_data_ptr<float>() + piece.head * query.keys : nullptr;
    a.bias_stride = query.keys;
    a.out = only ? out_ + row * d_ : part(piece.part);
    a.largest = only ? own_largest : largest(piece.part);
    a.sums = only ? own_sums : sums(piece.part);
    kernels().attend(a);
    if (!only) return;
    for (int64_t head = 0; head < piece.heads; ++head) {
      const float total = own_sums[head] + sink_weight(piece.head + head, own_largest[head]);
      for (int64_t i = 0; i < d_; ++i) a.out[head * d_ + i] /= total;
    }
  }

  /// Returns what a head's sink adds to a sum of weights relative to the largest score. It is infinite where the sink
  /// takes all, which makes the results 0.
  float sink_weight(int64_t head, float largest) const {
    return sinks_.defined() ? std::exp(sinks_.const_data_ptr<float>()[head] - largest) : 0.f;
  }

  /// Combines the partial results of the splits: rescales them to one largest score and adds them in the keys' order.
  void join(const Joined& all, int64_t head) {
    float* out = out_ + (all.row + head) * d_;
    std::fill(out, out + d_, 0.f);
    float best = *largest(all.first + head), total = 0;
    for (int64_t p = 1; p < all.pieces; ++p) best = std::max(best, *largest(all.first + p * heads_ + head));
    for (int64_t p = 0; p < all.pieces; ++p) {
      const int64_t row = all.first + p * heads_ + head;
      const float share = std::exp(*largest(row) - best), *from = part(row);
      total += share * *sums(row);
      for (int64_t i = 0; i < d_; ++i) out[i] += share * from[i];
    }
    total += sink_weight(head, best);
    for (int64_t i = 0; i < d_; ++i) out[i] /= total;
  }

  at::Tensor q_;
  std::span<const SingleQuery> queries_;
  int64_t window_;
  at::Tensor sinks_;
  int64_t heads_, group_, d_, head_bytes_, parts_ = 0;
  float* out_;
  const char *keys_, *values_;
  Attend whole_{};
  std::vector<Piece> pieces_;
  std::vector<Joined> joined_;
  std::vector<float> partial_;  ///< [parts, d] values, then [parts] largest scores, then [parts] sums
};

}  // namespace

void decode_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      std::span<const SingleQuery> queries, const AttentionOptions& options, at::Tensor& out) {
  Decode(q, k_cache, v_cache, queries, options, out).run();
}

}  // namespace pm::ops
