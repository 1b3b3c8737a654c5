// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/convolution/span_convolver.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

namespace pm::layers {

namespace {

/// Adds up the rows around each row: sum of factor(tap) * x[row + tap - taps / 2], zero beyond the ends of a sequence.
/// `factor` returns what multiplies the rows [first, first + count) for a tap.
at::Tensor add_neighbors(const at::Tensor& x, int64_t taps, const Batch& batch,
                         const std::function<at::Tensor(int64_t tap, int64_t first, int64_t count)>& factor) {
  at::Tensor sum = at::zeros_like(x);
  for (const ops::SequenceSpan& span : batch.sequences.spans) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t shift = tap - taps / 2, begin = std::max<int64_t>(0, -shift),
                    end = std::min(span.tokens, span.tokens - shift);
      if (begin >= end) continue;
      const int64_t first = span.first + begin, count = end - begin;
      sum.narrow(0, first, count).addcmul_(x.narrow(0, first + shift, count), factor(tap, first, count));
    }
  }
  return sum;
}

}  // namespace

SpanConvolver::SpanConvolver(const policy::Attention& attention, Loader& loader)
    : taps_(attention.span_convolution->size),
      heads_(loader.range(attention.query.weight)),
      depthwise_(loader.load(attention.span_convolution->depthwise)),
      pointwise_({&attention.span_convolution->pointwise}, loader),
      kernel_(attention.span_convolution->kernel, loader),
      values_({&attention.span_convolution->values}, loader) {}

at::Tensor SpanConvolver::operator()(const at::Tensor& x, const at::Tensor& queries, const Batch& batch,
                                     comm::Communicator& comm) const {
  const at::Tensor channels = depthwise_.to(at::kFloat).flatten(1).t();  // [taps, hidden]
  const at::Tensor seen =
      add_neighbors(x, taps_, batch, [&](int64_t tap, int64_t, int64_t) { return channels[tap].unsqueeze(0); });
  const at::Tensor keys = pointwise_(seen);
  const at::Tensor kernels = at::softmax(kernel_(keys.mul(queries), comm, at::kFloat)
                                             .narrow(1, heads_.begin * taps_, heads_.size() * taps_)
                                             .unflatten(1, {-1, taps_}),
                                         -1);  // [tokens, local heads, taps]
  const at::Tensor values = values_(x).unflatten(1, {heads_.size(), -1});
  return add_neighbors(values, taps_, batch,
                       [&](int64_t tap, int64_t first, int64_t count) {
                         return kernels.select(2, tap).narrow(0, first, count).unsqueeze(2);
                       })
      .flatten(1);
}

}  // namespace pm::layers
