// Which sizes of the axes a group of devices may have: what the user fixed, and what the model and the nodes allow.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/strategies/layout.h"

namespace pm {

/// "Tensor x 4", "Tensor x 2, Pipeline x 2": axes of size 1 are left out, unless all are.
std::string name_of(const Sizes&);
/// The axis of the largest size; of equal ones Tensor before Pipeline before Data.
Strategy main_axis(const Sizes&);

/// All sizes whose product is the devices and that agree with the wishes, Tensor first, or a refusal InvalidSizes with the numbers.
/// A strategy without sizes of its own takes all devices that other sizes leave it.
struct Choices {
  std::vector<Sizes> sizes;
  std::optional<Refusal> refusal;
  bool fixed = false;            ///< by the user's strategy or sizes
};
Choices choices(const Hardware&, const Wishes&);

/// Ranks of one node of the group: the devices over as few nodes as hold them, as equally as whole ranks allow; the last node may hold fewer.
int devices_of_a_node(const Hardware&);

/// Why the model or the nodes do not allow the sizes: reason TooFewHeads, TooFewLayers or SpansNodes. Nothing when they do. `across`: a tensor group may span nodes.
std::optional<Rejected> impossible(const Facts&, const Hardware&, const Sizes&, bool across = false);

/// The fewest heads of any stack, which is the most ranks of a tensor group (1 for models without attention), and the words for it.
struct HeadLimit { int64_t heads = 1; std::string which; };
HeadLimit head_limit(const Facts&);
/// Layers of all stacks.
int64_t layer_count(const Facts&);

}  // namespace pm
