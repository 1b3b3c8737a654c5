// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/cpu/prefill_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/ops/cpu/scratch.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/types.h"
#include "worker/ops/kv_codes.h"
#include "worker/ops/score_bias.h"

namespace pm::ops {

namespace {

constexpr int64_t most_rows = 256, least_rows = 64;  // that share packed keys

class Prefill {
 public:
  Prefill(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& sequence,
          const AttentionOptions& options, at::Tensor& out)
      : q_(q.narrow(0, sequence.first, sequence.tokens).contiguous()),
        k_(k),
        v_(v),
        sequence_(sequence),
        options_(options),
        bias_(score_bias(options, sequence.context, sequence.tokens, sequence.keys, q.device())),
        sinks_(options.sinks.defined() ? options.sinks.contiguous() : at::Tensor()),
        heads_(q.size(1)),
        group_(heads_ / k.size(1)),
        d_(q.size(2)),
        tiled_(kernels().tiles && k.scalar_type() == at::kBFloat16 && v.scalar_type() == at::kBFloat16 &&
               d_ >= min_tiled_width && d_ <= max_tiled_width && !bias_.defined()),
        out_(out.mutable_data_ptr<float>() + sequence.first * heads_ * d_) {
    if (bias_.defined()) bias_ = bias_.expand({heads_, bias_.size(1), sequence.keys}).contiguous();
  }

  void run() const {
    const int64_t kv_heads = heads_ / group_, all = sequence_.tokens * heads_;
    const int64_t rows =
        std::clamp(all / (4 * thread_pool().threads()) / least_rows * least_rows, least_rows, most_rows);
    const int64_t queries = std::max<int64_t>(1, rows / group_);
    const int64_t parts = (sequence_.tokens + queries - 1) / queries;
    thread_pool().parallel_for(parts * kv_heads, [&](int64_t i) {  // the parts with most keys first
      const int64_t part = parts - 1 - i / kv_heads, first = part * queries;
      attend(i % kv_heads, first, std::min(queries, sequence_.tokens - first));
    });
  }

 private:
  KeyRows rows_of(const at::Tensor& x, int64_t kv) const {
    const int64_t size = x.element_size();
    const char* first = static_cast<const char*>(x.const_data_ptr());
    if (x.dim() == 4)
      return {.type = element(x.scalar_type()),
              .first = first + kv * x.stride(1) * size,
              .d = d_,
              .stride = holds_codes(x) ? d_ : x.stride(2),
              .blocks = sequence_.blocks.data(),
              .block_stride = x.stride(0)};
    return {.type = element(x.scalar_type()),
            .first = first + (sequence_.key_row * x.stride(0) + kv * x.stride(1)) * size,
            .d = d_,
            .stride = x.stride(0)};
  }

  /// Attends with `count` queries from the first on, of all heads that read this kv head.
  void attend(int64_t kv, int64_t first, int64_t count) const {
    thread_local Scratch scratch;
    thread_local std::vector<QueryRow> rows;
    const int64_t width = packed_width(d_), all = count * group_;
    auto* sums = static_cast<float*>(scratch.get(4 * (all * width + span_keys * (d_ + width))));
    float *packed_keys = sums + all * width, *packed_values = packed_keys + span_keys * d_;
    std::fill(sums, packed_keys, 0.f);
    rows.clear();
    int64_t from = sequence_.keys, to = 0;
    for (int64_t i = 0; i < all; ++i) {
      const QueryRow row = begin(kv * group_ + i % group_, first + i / group_, sums + i * width);
      from = std::min(from, row.from);
      to = std::max(to, row.to);
      rows.push_back(row);
    }
    for (int64_t begin = from; begin < to; begin += span_keys) {
      const int64_t keys = std::min(span_keys, to - begin);
      const bool bf16 = options_.compute_type == at::kBFloat16;
      const PackKeys pack{rows_of(k_, kv), rows_of(v_, kv), begin, keys, packed_keys, packed_values, bf16};
      const AttendRows attend{element(k_.scalar_type()),
                              rows.data(),
                              all,
                              d_,
                              packed_keys,
                              packed_values,
                              begin,
                              keys,
                              static_cast<float>(options_.scale),
                              static_cast<float>(options_.softcap),
                              bf16};
      (tiled_ ? kernels().tiles->pack_keys : kernels().pack_keys)(pack);
      (tiled_ ? kernels().tiles->attend_rows : kernels().attend_rows)(attend);
    }
    for (int64_t i = 0; i < all; ++i) {
      const int64_t head = kv * group_ + i % group_;
      const QueryRow& row = rows[static_cast<size_t>(i)];
      const float sink = sinks_.defined() ? std::exp(sinks_.const_data_ptr<float>()[head] - row.largest) : 0.f;
      float* target = out_ + ((first + i / group_) * heads_ + head) * d_;
      for (int64_t c = 0; c < d_; ++c) target[c] = row.out[c] / (row.sum + sink);
    }
  }

  /// Returns the row of a query, token number context + `query` of the sequence, and a head.
  QueryRow begin(int64_t head, int64_t query, float* sums) const {
    const int64_t position = sequence_.context + query, window = options_.window;
    const int64_t after = options_.causal ? sequence_.causal_end(position)
                          : window > 0    ? position + window
                                          : sequence_.keys;
    return {.q = q_.const_data_ptr<float>() + (query * heads_ + head) * d_,
            .bias = bias_.defined() ? bias_.const_data_ptr<float>() +
                                          (head * bias_.size(1) + query % bias_.size(1)) * sequence_.keys
                                    : nullptr,
            .from = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0,
            .to = std::min(after, sequence_.keys),
            .largest = -std::numeric_limits<float>::infinity(),
            .sum = 0,
            .out = sums};
  }

  at::Tensor q_, k_, v_;
  const SequenceSpan& sequence_;
  const AttentionOptions& options_;
  at::Tensor bias_;  ///< [heads, queries or 1, keys]; undefined: none
  at::Tensor sinks_;
  int64_t heads_, group_, d_;
  bool tiled_;  ///< by the matrix unit
  float* out_;
};

}  // namespace

bool has_prefill_attention(const AttentionOptions& options) { return !options.relative_content.defined(); }

void prefill_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& sequence,
                       const AttentionOptions& options, at::Tensor& out) {
  if (out.numel() > 0) Prefill(q, k, v, sequence, options, out).run();  // a rank may have no heads
}

}  // namespace pm::ops
