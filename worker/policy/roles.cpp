// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/roles.h"

#include <stdexcept>

namespace pm::policy {

ShardingRule sharding_rule(Role role) {
  switch (role) {
    case Role::TokenEmbedding:
    case Role::LogitsWeight:
    case Role::LogitsBias:
      return {Sharding::Vocab, Axis::Vocab, 0};
    case Role::QueryWeight:
    case Role::BucketWeight:
    case Role::LatentKey:
    case Role::LatentValue:
      return {Sharding::ColumnHead, Axis::Heads, 0};
    case Role::LatentWeight:  // every rank caches whole latents
      return {Sharding::Replicated, Axis::Latent, -1};
    case Role::QueryBias:
    case Role::BucketBias:
    case Role::AttentionSink:
      return {Sharding::HeadVector, Axis::Heads, 0};
    case Role::KeyWeight:
    case Role::ValueWeight:
      return {Sharding::ColumnHead, Axis::KvRows, 0};
    case Role::KeyBias:
    case Role::ValueBias:
      return {Sharding::HeadVector, Axis::KvRows, 0};
    case Role::OutWeight:
      return {Sharding::RowHead, Axis::Heads, 1};
    case Role::RelativePositionBias:
    case Role::SegmentStates:
      return {Sharding::HeadLast, Axis::Heads, 1};
    case Role::UpWeight:
    case Role::GateWeight:
      return {Sharding::Column, Axis::Ffn, 0};
    case Role::UpBias:
    case Role::GateBias:
      return {Sharding::ColumnVector, Axis::Ffn, 0};
    case Role::DownWeight:
      return {Sharding::Row, Axis::Ffn, 1};
    case Role::RecurrentWeight:
    case Role::RecurrentGate:
      return {Sharding::Column, Axis::Groups, 0};
    case Role::RecurrentVector:
      return {Sharding::ColumnVector, Axis::Groups, 0};
    case Role::RecurrentOut:
      return {Sharding::Row, Axis::Groups, 1};
    case Role::PositionEmbedding:
      return {Sharding::Vocab, Axis::Positions, 0};
    case Role::PassageEmbedding:
      return {Sharding::Vocab, Axis::Passages, 0};
    case Role::BranchWeight:
    case Role::BottleneckWeight:
      return {Sharding::Column, Axis::Groups, 0};
    case Role::BranchBias:
    case Role::BottleneckBias:
      return {Sharding::ColumnVector, Axis::Groups, 0};
    // added once after the reduction, normalised over the whole width, or too small to be worth an exchange
    case Role::LatentBias:
    case Role::OutBias:
    case Role::DownBias:
    case Role::NormWeight:
    case Role::NormBias:
    case Role::IndexTable:
    case Role::EmbeddingProjection:
    case Role::PatchProjection:
    case Role::ConvolutionWeight:
    case Role::ConvolutionBias:
    case Role::ConvolutionGain:
    case Role::RunningMean:
    case Role::RunningVariance:
    case Role::LayerWeights:
    case Role::ExtraToken:
    case Role::DistanceVectors:  // which all heads of a layer read
    case Role::HeadDenseWeight:
    case Role::HeadDenseBias:
    case Role::RouterWeight:  // every rank chooses the experts of every token
    case Role::RouterBias:
    case Role::ClassWeight:
    case Role::ClassBias:
    case Role::RecurrentShared:  // what all heads write and read with
    case Role::RecurrentSharedVector:
    case Role::Scalar:
      return {Sharding::Replicated, Axis::None, -1};
  }
  throw std::logic_error("a role without a sharding rule");
}

bool is_matrix(Role role) {
  switch (role) {
    case Role::QueryWeight:
    case Role::KeyWeight:
    case Role::ValueWeight:
    case Role::OutWeight:
    case Role::LatentWeight:
    case Role::BucketWeight:
    case Role::UpWeight:
    case Role::GateWeight:
    case Role::DownWeight:
    case Role::BottleneckWeight:
    case Role::RecurrentWeight:
    case Role::RecurrentShared:
    case Role::RecurrentOut:
    case Role::LogitsWeight:
      return true;
    default:
      return false;
  }
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::TokenEmbedding:
      return "token embedding";
    case Role::PositionEmbedding:
      return "position embedding";
    case Role::IndexTable:
      return "index table";
    case Role::EmbeddingProjection:
      return "embedding projection";
    case Role::PatchProjection:
      return "patch projection";
    case Role::ConvolutionWeight:
      return "convolution weight";
    case Role::ConvolutionBias:
      return "convolution bias";
    case Role::ConvolutionGain:
      return "convolution gain";
    case Role::BranchWeight:
      return "convolution branch weight";
    case Role::BranchBias:
      return "convolution branch bias";
    case Role::BottleneckWeight:
      return "bottleneck weight";
    case Role::BottleneckBias:
      return "bottleneck bias";
    case Role::RunningMean:
      return "running mean";
    case Role::RunningVariance:
      return "running variance";
    case Role::LayerWeights:
      return "layer weights";
    case Role::ExtraToken:
      return "extra token";
    case Role::NormWeight:
      return "norm weight";
    case Role::NormBias:
      return "norm bias";
    case Role::QueryWeight:
      return "query weight";
    case Role::QueryBias:
      return "query bias";
    case Role::KeyWeight:
      return "key weight";
    case Role::KeyBias:
      return "key bias";
    case Role::ValueWeight:
      return "value weight";
    case Role::ValueBias:
      return "value bias";
    case Role::OutWeight:
      return "attention out weight";
    case Role::OutBias:
      return "attention out bias";
    case Role::SegmentStates:
      return "segment states";
    case Role::AttentionSink:
      return "attention sink";
    case Role::DistanceVectors:
      return "distance vectors";
    case Role::RelativePositionBias:
      return "relative position bias";
    case Role::LatentWeight:
      return "latent weight";
    case Role::LatentBias:
      return "latent bias";
    case Role::LatentKey:
      return "latent key weight";
    case Role::LatentValue:
      return "latent value weight";
    case Role::BucketWeight:
      return "bucket weight";
    case Role::BucketBias:
      return "bucket bias";
    case Role::UpWeight:
      return "up weight";
    case Role::UpBias:
      return "up bias";
    case Role::GateWeight:
      return "gate weight";
    case Role::GateBias:
      return "gate bias";
    case Role::DownWeight:
      return "down weight";
    case Role::DownBias:
      return "down bias";
    case Role::RecurrentWeight:
      return "recurrent in weight";
    case Role::RecurrentGate:
      return "recurrent gate weight";
    case Role::RecurrentVector:
      return "recurrent vector";
    case Role::RecurrentShared:
      return "recurrent shared weight";
    case Role::RecurrentSharedVector:
      return "recurrent shared vector";
    case Role::RecurrentOut:
      return "recurrent out weight";
    case Role::RouterWeight:
      return "router weight";
    case Role::RouterBias:
      return "router bias";
    case Role::HeadDenseWeight:
      return "head dense weight";
    case Role::HeadDenseBias:
      return "head dense bias";
    case Role::LogitsWeight:
      return "logits weight";
    case Role::LogitsBias:
      return "logits bias";
    case Role::ClassWeight:
      return "class weight";
    case Role::ClassBias:
      return "class bias";
    case Role::PassageEmbedding:
      return "passage embedding";
    case Role::Scalar:
      return "scalar";
  }
  return "?";
}

}  // namespace pm::policy
