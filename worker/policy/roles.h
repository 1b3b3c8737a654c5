// SPDX-License-Identifier: Apache-2.0
// Maps each role of a parameter to the way it is sharded; policies do not say how a tensor is sharded.
#pragma once
#include <cstdint>
#include <string_view>

#include "planner/model_metadata.h"
#include "worker/policy/spec/role.h"

namespace pm::policy {

/// How a parameter is sharded over tensor-parallel ranks.
enum class Sharding : uint8_t {
  Vocab,         ///< rows of an embedding or of a language-model head
  Column,        ///< output features, free
  ColumnHead,    ///< output features in whole heads
  HeadVector,    ///< a bias of heads x head_dim
  ColumnVector,  ///< a bias of free output features
  Row,           ///< input features, free
  RowHead,       ///< input features in whole heads
  HeadLast,      ///< [buckets, heads]
  Replicated,    ///< biases after a reduction, norms, small tables
};

struct ShardingRule {
  Sharding sharding;
  Axis axis;  ///< the units that the planner partitions; keys and values by rows, which are whole heads while there
              ///< are as many as ranks
  int dim;    ///< of the logical tensor ([out, in] for matrices) that is sharded; -1 for Replicated
};

/// Returns the sharding rule of a role. Every role has one.
ShardingRule sharding_rule(Role);
std::string_view name_of(Role);
/// Returns true for matrices that are multiplied per token: projections of layers and the LM head. I8 and I4
/// hold these as codes.
bool is_matrix(Role);

}  // namespace pm::policy
