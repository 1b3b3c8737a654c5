// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/content_buckets.h"

#include <ATen/ATen.h>

#include <numeric>

namespace pm::layers {

ContentBuckets::ContentBuckets(const policy::ContentBuckets& buckets, Loader& loader)
    : buckets_(buckets.num_buckets), swapped_(buckets.swapped_in_streams), linear_({&buckets.linear}, loader) {}

at::Tensor ContentBuckets::operator()(const at::Tensor& x, int64_t heads) const {
  return linear_(x).to(at::kFloat).reshape({x.size(0), buckets_, heads}).transpose(1, 2);
}

at::Tensor ContentBuckets::swapped(const at::Tensor& biases, const Batch& batch,
                                   const std::vector<int64_t>& heads_of_rank, comm::Communicator& comm) {
  const int64_t streams = batch.streams, rows = biases.size(0) / (1 + streams), heads = biases.size(1),
                buckets = biases.size(2);
  const auto before = heads_of_rank.begin() + comm.rank();
  const int64_t first = std::accumulate(heads_of_rank.begin(), before, int64_t{0}),
                count = std::accumulate(before, heads_of_rank.end(), first);
  at::Tensor all = biases.transpose(0, 1).contiguous();  // [heads, rows, buckets]
  if (comm.size() > 1) all = comm.all_gatherv(all, heads_of_rank);
  all = all.narrow(1, rows, streams * rows).reshape({count, streams, rows, buckets});
  at::Tensor out = biases.contiguous().clone();
  at::Tensor of_streams = out.narrow(0, rows, streams * rows).view({streams, rows, heads, buckets});
  for (const ops::SequenceSpan& span : batch.sequences.spans) {
    const at::Tensor taken = all.narrow(2, span.first, span.tokens)
                                 .permute({2, 1, 0, 3})
                                 .reshape({streams, count, span.tokens, buckets})
                                 .narrow(1, first, heads);
    of_streams.narrow(1, span.first, span.tokens).copy_(taken.transpose(1, 2));
  }
  return out;
}

}  // namespace pm::layers
