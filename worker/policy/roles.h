// The one table role -> cut: what a parameter is decides how it is shared out; policies never name a cut.
#pragma once
#include <cstdint>
#include <string_view>

#include "planner/facts.h"

namespace pm::policy {

/// What a parameter is in its block.
enum class Role : uint8_t {
  TokenEmbedding, PositionEmbedding, IndexTable, EmbeddingProjection, PatchProjection, ExtraToken,
  NormGain, NormBias,
  QueryWeight, QueryBias, KeyWeight, KeyBias, ValueWeight, ValueBias, OutWeight, OutBias,
  BucketBias,
  UpWeight, UpBias, GateWeight, GateBias, DownWeight, DownBias,
  HeadDenseWeight, HeadDenseBias, LogitsWeight, LogitsBias, ClassWeight, ClassBias, Scalar,
};

/// The cuts of reference/families.md 3.2.
enum class Cut : uint8_t {
  Vocab,        ///< rows of an embedding or of a language-model head
  Column,       ///< output features, free
  ColumnHead,   ///< output features in whole heads
  HeadVector,   ///< a bias of heads x head_dim
  ColumnVector, ///< a bias of free output features
  Row,          ///< input features, free
  RowHead,      ///< input features in whole heads
  HeadLast,     ///< [buckets, heads]
  Replicated,   ///< biases after a reduction, norms, small tables
};

struct CutRule {
  Cut cut;
  Axis axis;    ///< by which units the planner deals it; keys and values by their rows, which are heads' own while there are as many as ranks
  int dim;      ///< of the logical tensor ([out, in] for matrices) that is cut; -1 for Replicated
};

/// The rule of a role. Total: every role has one.
CutRule rule_of(Role);
std::string_view name_of(Role);
/// Whether what the role names is multiplied token by token: projections of layers, scores of the vocabulary. int8 holds these.
bool is_matrix(Role);

}  // namespace pm::policy
