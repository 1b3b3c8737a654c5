// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/sparse_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "contract/query_block.h"

namespace pm::ops {

namespace {

constexpr double hidden = -std::numeric_limits<double>::infinity();

/// Columns [begin, end) of keys.
struct KeyRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// A block of queries, the columns [begin, end), with the keys that it sees.
struct QueryBlock {
  int64_t begin = 0, end = 0;
  std::vector<KeyRange> keys;
  int64_t repeats = 1;  ///< how often each key of the first range counts
};

at::Tensor index_tensor(std::span<const int64_t> values, at::Device device) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong).to(device);
}

/// One sequence with a row for each of its columns.
class Sequence {
 public:
  Sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceSpan& span,
           const SequenceColumns& where, double scale)
      : device_(q.device()), tokens_(span.tokens), length_(std::max(where.length, span.tokens)) {
    if (!where.columns.empty()) columns_ = index_tensor(where.columns, device_);
    const int64_t count = where.columns.empty() ? tokens_ : where.columns.back() + 1;
    const auto laid_out = [&](const at::Tensor& rows) {
      const at::Tensor own = rows.narrow(0, span.first, tokens_).permute({1, 0, 2});
      if (!columns_.defined()) return own.contiguous();
      return at::zeros({own.size(0), count, own.size(2)}, own.options()).index_copy_(1, columns_, own);
    };
    q_ = laid_out(q).mul(scale);
    k_ = laid_out(k);
    v_ = laid_out(v);
    out_ = at::empty_like(q_);
    if (columns_.defined()) bias_ = at::full({count}, hidden, q.options()).index_fill_(0, columns_, 0);
  }

  at::Device device() const { return device_; }
  int64_t heads() const { return q_.size(0); }
  int64_t tokens() const { return tokens_; }
  int64_t columns() const { return q_.size(1); }  ///< up to that of the last token
  int64_t length() const { return length_; }      ///< with the padding after it
  const at::Tensor& q() const { return q_; }
  const at::Tensor& k() const { return k_; }
  const at::Tensor& v() const { return v_; }
  const at::Tensor& bias() const { return bias_; }  ///< [columns]: -inf where there is no token; undefined: none
  at::Tensor& out() { return out_; }
  /// Selects the columns that have tokens.
  at::Tensor of_tokens(const at::Tensor& values, int64_t dimension) const {
    return columns_.defined() ? at::index_select(values, dimension, columns_) : values;
  }
  /// Returns the columns of these tokens.
  at::Tensor columns_of(std::span<const int64_t> tokens) const {
    const at::Tensor numbers = index_tensor(tokens, device_);
    return columns_.defined() ? at::index_select(columns_, 0, numbers) : numbers;
  }

 private:
  at::Device device_;
  int64_t tokens_, length_;
  at::Tensor columns_, q_, k_, v_, out_, bias_;
};

/// Returns the columns `ranges` of values [heads, columns, d] side by side.
at::Tensor taken(const at::Tensor& values, const std::vector<KeyRange>& ranges, int64_t dimension) {
  std::vector<at::Tensor> parts;
  for (const KeyRange& range : ranges) parts.push_back(values.narrow(dimension, range.begin, range.size()));
  return parts.size() == 1 ? parts[0] : at::cat(parts, dimension);
}

// ---- blocks

/// Returns the block of queries with number `number` of `count`, and the blocks of keys that it sees.
QueryBlock query_block(const BlockSparse& pattern, int64_t number, int64_t count, int64_t columns) {
  const auto range = [&](int64_t first, int64_t last) {
    return KeyRange{std::min(columns, first * pattern.block), std::min(columns, (last + 1) * pattern.block)};
  };
  const KeyRange queries = range(number, number);
  QueryBlock block{.begin = queries.begin, .end = queries.end, .keys = {}, .repeats = 1 + pattern.random};
  if (number == 0 || number == count - 1) {
    block.keys = {{0, columns}};
    block.repeats = 1;
    return block;
  }
  block.keys = {range(0, 0), range(std::max<int64_t>(1, number - 1), std::min(count - 2, number + 1)),
                range(count - 1, count - 1)};
  return block;
}

void attend(Sequence& s, const BlockSparse& pattern, at::Tensor* probabilities) {
  const int64_t columns = s.columns();
  const bool dense = s.length() <= pattern.dense_length();
  const int64_t count = ((dense ? columns : s.length()) + pattern.block - 1) / pattern.block;
  if (probabilities) *probabilities = at::zeros({s.heads(), columns, columns}, s.q().options());
  for (int64_t number = 0; number < count; ++number) {
    QueryBlock block = query_block(pattern, number, count, columns);
    if (block.begin == block.end) continue;
    if (dense) block.keys = {{0, columns}}, block.repeats = 1;
    at::Tensor scores =
        at::bmm(s.q().narrow(1, block.begin, block.end - block.begin), taken(s.k(), block.keys, 1).transpose(1, 2));
    if (s.bias().defined()) scores.add_(taken(s.bias(), block.keys, 0));
    const int64_t first = block.keys[0].size();
    if (block.repeats > 1) scores.narrow(2, 0, first).add_(std::log(static_cast<double>(block.repeats)));
    const at::Tensor weights = at::softmax(scores, -1);
    s.out().narrow(1, block.begin, block.end - block.begin).copy_(at::bmm(weights, taken(s.v(), block.keys, 1)));
    if (!probabilities) continue;
    if (block.repeats > 1) weights.narrow(2, 0, first).div_(block.repeats);
    at::Tensor rows = probabilities->narrow(1, block.begin, block.end - block.begin);
    int64_t at = 0;
    for (const KeyRange& range : block.keys) {
      rows.narrow(2, range.begin, range.size()).copy_(weights.narrow(2, at, range.size()));
      at += range.size();
    }
  }
}

// ---- window

/// Attends with all queries to their windows and to the keys of the columns `global`; the rows of global tokens hold
/// nothing of use. Appends nothing for the global tokens to `probabilities`.
void attend(Sequence& s, const SlidingWindow& window, const at::Tensor& global, at::Tensor* probabilities) {
  const int64_t side = window.each_side, step = sliding_query_block(side), columns = s.columns();
  const int64_t globals = global.defined() ? global.size(0) : 0;
  at::Tensor bias = s.bias(), global_keys, global_values;  // global keys count once, outside of the window
  if (globals > 0) {
    bias = (bias.defined() ? bias : at::zeros({columns}, s.q().options())).index_fill(0, global, hidden);
    global_keys = at::index_select(s.k(), 1, global);
    global_values = at::index_select(s.v(), 1, global);
  }
  // band[i][j] is 0 where column `begin` - side + j lies in the window of query `begin` + i
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(s.device());
  const at::Tensor ahead = at::arange(step + 2 * side, whole).unsqueeze(0) - at::arange(step, whole).unsqueeze(1);
  const at::Tensor outside = at::logical_or(ahead < 0, ahead > 2 * side);
  const at::Tensor band = at::zeros({step, step + 2 * side}, s.q().options()).masked_fill_(outside, hidden);
  if (probabilities) *probabilities = at::zeros({s.heads(), columns, globals + 2 * side + 1}, s.q().options());
  for (int64_t begin = 0; begin < columns; begin += step) {
    const int64_t queries = std::min(step, columns - begin);
    const KeyRange near{std::max<int64_t>(0, begin - side), std::min(columns, begin + queries + side)};
    at::Tensor keys = s.k().narrow(1, near.begin, near.size()), values = s.v().narrow(1, near.begin, near.size());
    if (globals > 0) keys = at::cat({global_keys, keys}, 1), values = at::cat({global_values, values}, 1);
    at::Tensor scores = at::bmm(s.q().narrow(1, begin, queries), keys.transpose(1, 2));
    at::Tensor of_window = scores.narrow(2, globals, near.size());
    of_window.add_(band.narrow(0, 0, queries).narrow(1, near.begin - begin + side, near.size()));
    if (bias.defined()) of_window.add_(bias.narrow(0, near.begin, near.size()));
    const at::Tensor weights = at::softmax(scores, -1);
    s.out().narrow(1, begin, queries).copy_(at::bmm(weights, values));
    if (!probabilities) continue;
    at::Tensor rows = probabilities->narrow(1, begin, queries);
    rows.narrow(2, 0, globals).copy_(weights.narrow(2, 0, globals));
    const at::Tensor key = at::arange(begin, begin + queries, whole).unsqueeze(1) +
                           at::arange(2 * side + 1, whole).unsqueeze(0) - (side + near.begin);
    const at::Tensor exists = at::logical_and(key >= 0, key < near.size()).unsqueeze(0);
    const at::Tensor place = key.clamp(0, near.size() - 1).unsqueeze(0).expand({s.heads(), queries, 2 * side + 1});
    rows.narrow(2, globals, 2 * side + 1)
        .copy_(at::gather(weights.narrow(2, globals, near.size()), 2, place).masked_fill(exists.logical_not(), 0));
  }
  if (probabilities && globals > 0) probabilities->index_fill_(1, global, 0);
}

/// Attends with global tokens [globals, heads, d] to all tokens of their sequence, keys and values [tokens, heads, d].
/// Returns [globals, heads, d].
at::Tensor attend_globally(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale, int64_t step,
                           at::Tensor* probabilities) {
  const at::Tensor queries = q.permute({1, 0, 2}).mul(scale), keys = k.permute({1, 2, 0}).contiguous(),
                   values = v.permute({1, 0, 2}).contiguous();
  std::vector<at::Tensor> out, all;
  for (int64_t begin = 0; begin < queries.size(1); begin += step) {
    const int64_t count = std::min(step, queries.size(1) - begin);
    const at::Tensor weights = at::softmax(at::bmm(queries.narrow(1, begin, count), keys), -1);
    out.push_back(at::bmm(weights, values));
    if (probabilities) all.push_back(weights);
  }
  if (probabilities) *probabilities = at::cat(all, 1).transpose(1, 2);
  return at::cat(out, 1).permute({1, 0, 2});
}

}  // namespace

at::Tensor sparse_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const GlobalRows& global,
                            std::span<const SequenceSpan> sequences, std::span<const SequenceColumns> columns,
                            const SparseOptions& options, std::vector<SparseProbabilities>* probabilities) {
  if (!columns.empty() && columns.size() != sequences.size())
    throw std::logic_error(std::to_string(columns.size()) + " sequences have columns, there are " +
                           std::to_string(sequences.size()) + " sequences");
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  int64_t globals_before = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceSpan& span = sequences[i];
    const SequenceColumns where = columns.empty() ? SequenceColumns{} : columns[i];
    Sequence sequence(q, k, v, span, where, options.scale);
    SparseProbabilities* seen = probabilities ? &probabilities->emplace_back() : nullptr;
    at::Tensor own = out.narrow(0, span.first, span.tokens);
    const auto put = [&] { own.copy_(sequence.of_tokens(sequence.out(), 1).permute({1, 0, 2})); };
    if (const auto* blocks = std::get_if<BlockSparse>(&options.pattern)) {
      attend(sequence, *blocks, seen ? &seen->seen : nullptr);
      put();
      if (seen) seen->seen = sequence.of_tokens(sequence.of_tokens(seen->seen, 1), 2);
      continue;
    }
    const auto& window = std::get<SlidingWindow>(options.pattern);
    const auto globals = static_cast<int64_t>(where.global_tokens.size());
    attend(sequence, window, globals > 0 ? sequence.columns_of(where.global_tokens) : at::Tensor(),
           seen ? &seen->seen : nullptr);
    put();
    if (seen) {
      seen->seen = sequence.of_tokens(seen->seen, 1);
      seen->global = at::zeros({q.size(1), span.tokens, 0}, q.options());
    }
    if (globals == 0) continue;
    const at::Tensor answers =
        attend_globally(global.q.narrow(0, globals_before, globals), global.k.narrow(0, span.first, span.tokens),
                        global.v.narrow(0, span.first, span.tokens), options.scale,
                        sliding_query_block(window.each_side), seen ? &seen->global : nullptr);
    own.index_copy_(0, index_tensor(where.global_tokens, q.device()), answers);
    globals_before += globals;
  }
  return out;
}

}  // namespace pm::ops
