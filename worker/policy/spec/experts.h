// SPDX-License-Identifier: Apache-2.0
// Feed-forward blocks among which each token chooses some (Shazeer et al., "Outrageously large neural networks", 2017).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// What a router makes of its logits before it chooses: their softmax over all experts, the sigmoid of each, or
/// nothing, where the softmax is over those that were chosen. SparseMixer chooses two by their logits; the weight of
/// each is its share in the softmax over it and those that are left and lie near it (Liu et al., "GRIN", 2024).
enum class RouterScores : uint8_t { Softmax, Sigmoid, SoftmaxOfChosen, SparseMixer };
template <>
struct Words<RouterScores> {
  static constexpr std::array<std::string_view, 4> all{"softmax", "sigmoid", "softmax_of_chosen", "sparsemixer"};
};

/// What stands for a group of experts where groups are chosen: the sum of its two best scores, or its best one.
enum class GroupScore : uint8_t { BestTwo, Best };
template <>
struct Words<GroupScore> {
  static constexpr std::array<std::string_view, 2> all{"top2_sum", "max"};
};

/// Chooses experts for each token: those with the largest scores. Their scores are the weights by which what they make
/// is added.
struct Router {
  Linear linear;  ///< [experts, hidden]
  RouterScores scores = RouterScores::Softmax;
  std::optional<Param> choice_bias;     ///< [experts]: added to the scores where experts are chosen, not to the weights
  int64_t groups = 1, groups_kept = 1;  ///< the experts lie in so many groups one after another; a token chooses among
                                        ///< those of the groups that `group_score` puts first
  GroupScore group_score = GroupScore::BestTwo;
  int64_t per_token = 1;
  bool normalise = false;  ///< the weights of a token are divided by their sum
  double factor = 1;       ///< of the weights
  double jitter = 0;       ///< SparseMixer: logits within twice this share of the chosen one's lie near it
  /// Of the residual, which the router reads in place of what the experts read, times `scale_input` (Gemma 4).
  std::optional<Norm> norm;
  double scale_input = 1;
  std::optional<Param> expert_factors;  ///< [experts]: of the weights of each

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
