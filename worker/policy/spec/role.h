// SPDX-License-Identifier: Apache-2.0
// The role of a parameter in its block.
#pragma once
#include <cstdint>

namespace pm::policy {

/// The role of a parameter in its block.
enum class Role : uint8_t {
  TokenEmbedding,
  PositionEmbedding,
  IndexTable,
  EmbeddingProjection,
  PatchProjection,
  ConvolutionWeight,
  ConvolutionBias,
  ConvolutionGain,
  BranchWeight,
  BranchBias,
  BottleneckWeight,
  BottleneckBias,
  RunningMean,
  RunningVariance,
  LayerWeights,
  ExtraToken,
  NormWeight,
  NormBias,
  QueryWeight,
  QueryBias,
  KeyWeight,
  KeyBias,
  ValueWeight,
  ValueBias,
  OutWeight,
  OutBias,
  RelativePositionBias,
  BucketWeight,
  BucketBias,
  SegmentStates,
  AttentionSink,
  DistanceVectors,
  UpWeight,
  UpBias,
  GateWeight,
  GateBias,
  DownWeight,
  DownBias,
  RecurrentWeight,
  RecurrentGate,
  RecurrentVector,
  RecurrentOut,
  RouterWeight,
  RouterBias,
  HeadDenseWeight,
  HeadDenseBias,
  LogitsWeight,
  LogitsBias,
  ClassWeight,
  ClassBias,
  PassageEmbedding,
  Scalar,
};

}  // namespace pm::policy
