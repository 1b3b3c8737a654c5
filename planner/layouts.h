// SPDX-License-Identifier: Apache-2.0
// Enumerates the sizes of the parallelism axes that the user, the model and the nodes allow for the devices of a
// replica.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/strategies/layout.h"

namespace pm {

/// Returns "Tensor x 4" or "Tensor x 2, Pipeline x 2": axes of size 1 are left out, unless all sizes are 1.
std::string name_of(const Sizes&);
/// Returns the axis of the largest size; among equal sizes Tensor comes before Pipeline before Data.
Strategy main_axis(const Sizes&);

/// All sizes whose product is the number of devices and that meet the constraints, Tensor first, or a refusal
/// InvalidSizes with the numbers. A strategy without sizes of its own takes all devices that other sizes leave.
struct Choices {
  std::vector<Sizes> sizes;
  std::optional<Refusal> refusal;
  bool fixed = false;  ///< by the user's strategy or sizes
};
Choices choices(const Hardware&, const PlanConstraints&);

/// Returns the ranks of one node: the devices are split over as few nodes as hold them, as equally as whole ranks
/// allow. The last node may hold fewer.
int devices_of_a_node(const Hardware&);

/// Returns why the model or the nodes do not allow the sizes (TooFewHeads, TooFewLayers or SpansNodes), or nothing when
/// they do. `across` allows a tensor-parallel group to span nodes.
std::optional<Rejected> impossible(const ModelMetadata&, const Hardware&, const Sizes&, bool across = false);

/// The fewest heads of any stack, or units of its recurrent layers, which is the largest tensor-parallel size (1 for
/// models with neither), and the phrase for messages.
struct HeadLimit {
  int64_t heads = 1;
  std::string which;
};
HeadLimit head_limit(const ModelMetadata&);
/// Returns the number of layers of all stacks.
int64_t layer_count(const ModelMetadata&);

}  // namespace pm
