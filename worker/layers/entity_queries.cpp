// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/entity_queries.h"

#include <ATen/ATen.h>

namespace pm::layers {

EntityQueries::EntityQueries(const policy::EntityQueries& queries, Loader& loader)
    : words_({&queries.word_to_entity}, loader),
      entities_({&queries.entity_to_word, &queries.entity_to_entity}, loader) {}

at::Tensor EntityQueries::queries(const at::Tensor& q, const at::Tensor& x, const EntityRows& entities) const {
  const at::Tensor both = at::cat({q, words_(x).reshape(q.sizes())}, 2);
  const at::Tensor own = entities_(at::index_select(x, 0, entities.rows));  // all heads for tokens, then for entities
  return both.index_copy(0, entities.rows,
                         own.reshape({own.size(0), 2, q.size(1), q.size(2)}).transpose(1, 2).flatten(2));
}

at::Tensor EntityQueries::keys(const at::Tensor& k, const EntityRows& entities) {
  at::Tensor both = at::cat({k, at::zeros_like(k)}, 2);
  const at::Tensor own = at::index_select(k, 0, entities.rows);
  return both.index_copy_(0, entities.rows, at::cat({at::zeros_like(own), own}, 2));
}

}  // namespace pm::layers
