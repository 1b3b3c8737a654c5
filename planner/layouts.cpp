// See layouts.h.
#include "planner/layouts.h"

#include <limits>

#include "planner/words.h"

namespace pm {

namespace {

constexpr int most_devices = 1024;

struct AxisWish { const char* name; std::optional<int> size; Strategy strategy; };

std::vector<AxisWish> axes(const Wishes& wishes) {
  return {{"tensor", wishes.tensor, Strategy::Tensor}, {"pipeline", wishes.pipeline, Strategy::Pipeline}, {"data", wishes.data, Strategy::Data}};
}

Choices refused(const std::string& message) { return {{}, Refusal{"InvalidSizes", message, {}}, true}; }

bool agrees(const std::optional<int>& wish, int size) { return !wish || *wish == size; }

/// Strategy and sizes that contradict each other or the devices.
std::optional<std::string> contradiction(const Wishes& wishes, int n) {
  int64_t product = 1;
  std::string set;
  bool free = false;
  for (const AxisWish& axis : axes(wishes)) {
    free = free || !axis.size;
    if (!axis.size) continue;
    if (*axis.size < 1 || *axis.size > most_devices) return std::string(axis.name) + "=" + number(*axis.size) + "; expected 1 to " + number(most_devices);
    product *= *axis.size;
    set += (set.empty() ? "" : " x ") + std::string(axis.name) + "=" + number(*axis.size);
    if (wishes.strategy == axis.strategy && *axis.size == 1 && n > 1) {
      return "strategy " + std::string(name_of(axis.strategy)) + " with " + axis.name + "=1 leaves nothing to it; give " + axis.name + " a larger size or leave one of both out";
    }
  }
  if (n % product != 0 || (!free && product != n)) {
    const bool one = set.find(' ') == std::string::npos;
    return set + (one ? "" : " is " + number(product)) + ", and " + devices(n) + " are given to a group; expected sizes whose product " + (free ? "divides " : "is ") + number(n) +
           ": change the sizes or the devices, and use replicas for more groups";
  }
  if (wishes.strategy && product == n && n > 1) {
    for (const AxisWish& axis : axes(wishes)) {
      if (axis.strategy == *wishes.strategy && !axis.size) return "strategy " + std::string(name_of(axis.strategy)) + ", but " + set + " take all " + devices(n) + "; leave some to it";
    }
  }
  return std::nullopt;
}

}  // namespace

std::string name_of(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] : {std::pair{"Tensor", sizes.tensor}, {"Pipeline", sizes.pipeline}, {"Data", sizes.data}}) {
    if (size > 1) text += (text.empty() ? "" : ", ") + std::string(name) + " x " + number(size);
  }
  return text.empty() ? "Tensor x 1" : text;
}

Strategy main_axis(const Sizes& sizes) {
  if (sizes.tensor >= sizes.pipeline && sizes.tensor >= sizes.data) return Strategy::Tensor;
  return sizes.pipeline >= sizes.data ? Strategy::Pipeline : Strategy::Data;
}

Choices choices(const Hardware& hardware, const Wishes& wishes) {
  const int n = hardware.devices;
  if (n < 1 || n > most_devices) return refused(number(n) + " devices given; expected 1 to " + number(most_devices));
  if (auto wrong = contradiction(wishes, n)) return refused(*wrong);
  Choices out;
  out.fixed = wishes.strategy || wishes.tensor || wishes.pipeline || wishes.data;
  const auto wanted = [&](Strategy strategy, std::optional<int> size, int candidate) {
    if (!agrees(size, candidate)) return false;
    // an axis that was not asked for stays 1 beside a strategy that was
    return !wishes.strategy || size || *wishes.strategy == strategy || candidate == 1 || (*wishes.strategy == Strategy::Tensor ? wishes.tensor : *wishes.strategy == Strategy::Pipeline ? wishes.pipeline : wishes.data);
  };
  for (int tensor = n; tensor >= 1; --tensor) {
    if (n % tensor != 0 || !wanted(Strategy::Tensor, wishes.tensor, tensor)) continue;
    for (int pipeline = n / tensor; pipeline >= 1; --pipeline) {
      if (n / tensor % pipeline != 0) continue;
      const Sizes sizes{tensor, pipeline, n / tensor / pipeline};
      if (wanted(Strategy::Pipeline, wishes.pipeline, pipeline) && wanted(Strategy::Data, wishes.data, sizes.data)) out.sizes.push_back(sizes);
    }
  }
  return out;
}

HeadLimit head_limit(const Facts& facts) {
  HeadLimit limit{std::numeric_limits<int64_t>::max(), ""};
  for (const StackFacts& stack : facts.stacks) {
    if (stack.heads > 0 && stack.heads < limit.heads) limit = {stack.heads, "the " + stack.name + " has " + number(stack.heads) + " attention heads"};
  }
  return limit.which.empty() ? HeadLimit{1, "the model has no attention heads"} : limit;
}

int64_t layer_count(const Facts& facts) {
  int64_t layers = 0;
  for (const StackFacts& stack : facts.stacks) layers += stack.layers;
  return layers;
}

int devices_of_a_node(const Hardware& hardware) {
  if (hardware.devices_per_node <= 0 || hardware.devices_per_node >= hardware.devices) return hardware.devices;
  const int nodes = (hardware.devices + hardware.devices_per_node - 1) / hardware.devices_per_node;
  return (hardware.devices + nodes - 1) / nodes;
}

std::optional<Rejected> impossible(const Facts& facts, const Hardware& hardware, const Sizes& sizes, bool across) {
  const HeadLimit limit = head_limit(facts);
  const auto rejected = [&](const char* reason, const std::string& message) { return Rejected{name_of(sizes), reason, message, std::nullopt}; };
  if (sizes.tensor > limit.heads) {
    return rejected("TooFewHeads", "tensor=" + number(sizes.tensor) + ", but " + limit.which + " and each rank needs at least one; use at most " + number(limit.heads));
  }
  const int64_t layers = layer_count(facts);
  if (sizes.pipeline > std::max<int64_t>(layers, 1)) {
    return rejected("TooFewLayers", "pipeline=" + number(sizes.pipeline) + ", but the model has " + number(layers) + " layers and each stage needs at least one; use at most " + number(layers));
  }
  const int each = devices_of_a_node(hardware);
  if (!across && sizes.devices() > each && each % sizes.tensor != 0) {   // ranks follow each other over the nodes, so a tensor group has to divide a node's share
    return rejected("SpansNodes", devices(sizes.devices()) + " lie at " + number(each) + " on a node, so that a tensor group of " + number(sizes.tensor) +
                                      " would span nodes, and unless it is asked for it stays inside one; use a tensor size that divides " + number(each));
  }
  return std::nullopt;
}

}  // namespace pm
