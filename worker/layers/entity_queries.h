// SPDX-License-Identifier: Apache-2.0
// What tokens and entities ask of each other.
#pragma once
#include "worker/layers/layers.h"
#include "worker/policy/spec/attention.h"

namespace pm::layers {

/// Lets tokens and entities ask different things of each other. The query for tokens and the query for entities lie
/// beside each other, and a key has zeros beside it where the other kind's query stands, so that one product gives the
/// scores of both.
class EntityQueries {
 public:
  EntityQueries(const policy::EntityQueries&, Loader&);
  /// q [tokens, local heads, head_dim] of tokens for tokens -> [tokens, local heads, 2 x head_dim].
  at::Tensor queries(const at::Tensor& q, const at::Tensor& x, const EntityRows&) const;
  /// k [tokens, kv heads, head_dim] -> [tokens, kv heads, 2 x head_dim].
  static at::Tensor keys(const at::Tensor& k, const EntityRows&);

 private:
  ColumnLinear words_;     ///< of tokens for entities
  ColumnLinear entities_;  ///< of entities, for tokens and for entities
};

}  // namespace pm::layers
