// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/projection_norms.h"

#include <ATen/ATen.h>

namespace pm::layers {

ProjectionNorms::ProjectionNorms(const policy::Attention& attention, Loader& loader) {
  const auto part = [&](const policy::Norm& norm) {
    return Part{loader.weight(norm.weight.value()), norm.weight->shape[0], norm.eps};
  };
  query_ = part(attention.projection_norms->query);
  key_ = part(attention.projection_norms->key);
}

at::Tensor ProjectionNorms::operator()(const at::Tensor& projected, comm::Communicator& comm) const {
  const at::Tensor query = query_.weight.value().to(at::kFloat), key = key_.weight.value().to(at::kFloat);
  const int64_t queries = query.size(0), keys = key.size(0);
  const at::Tensor q = projected.narrow(1, 0, queries).to(at::kFloat),
                   k = projected.narrow(1, queries, keys).to(at::kFloat);
  at::Tensor squares = at::stack({q.square().sum(1), k.square().sum(1)});
  if (comm.size() > 1) comm.all_reduce(squares);
  const auto normed = [](const at::Tensor& x, const at::Tensor& sum, const Part& part, const at::Tensor& weight) {
    return x * at::rsqrt(sum / static_cast<double>(part.width) + part.eps).unsqueeze(1) * weight;
  };
  const at::Tensor values = projected.narrow(1, queries + keys, projected.size(1) - queries - keys);
  return at::cat({normed(q, squares[0], query_, query).to(projected.scalar_type()),
                  normed(k, squares[1], key_, key).to(projected.scalar_type()), values},
                 1);
}

}  // namespace pm::layers
