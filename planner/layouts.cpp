// SPDX-License-Identifier: Apache-2.0
#include "planner/layouts.h"

#include <limits>

#include "planner/text_format.h"

namespace pm {

using namespace text;

namespace {

constexpr int max_devices = 1024;

struct AxisConstraint {
  const char* name;
  std::optional<int> size;
  Strategy strategy;
};

std::vector<AxisConstraint> axes(const PlanConstraints& constraints) {
  return {{"tensor", constraints.tensor, Strategy::Tensor},
          {"pipeline", constraints.pipeline, Strategy::Pipeline},
          {"data", constraints.data, Strategy::Data}};
}

Choices refused(const std::string& message) { return {{}, Refusal{Reason::InvalidSizes, message, {}}, true}; }

bool agrees(const std::optional<int>& wish, int size) { return !wish || *wish == size; }

/// Returns a message when strategy, sizes and devices contradict each other.
std::optional<std::string> contradiction(const PlanConstraints& constraints, int n) {
  int64_t product = 1;
  std::string set;
  bool free = false;
  for (const AxisConstraint& axis : axes(constraints)) {
    free = free || !axis.size;
    if (!axis.size) continue;
    if (*axis.size < 1 || *axis.size > max_devices)
      return std::string(axis.name) + "=" + number(*axis.size) + "; expected 1 to " + number(max_devices);
    product *= *axis.size;
    set += (set.empty() ? "" : " x ") + std::string(axis.name) + "=" + number(*axis.size);
    if (constraints.strategy == axis.strategy && *axis.size == 1 && n > 1) {
      return "strategy " + std::string(name_of(axis.strategy)) + " with " + axis.name +
             "=1 leaves nothing to it; give " + axis.name + " a larger size or leave one of both out";
    }
  }
  if (n % product != 0 || (!free && product != n)) {
    const bool one = set.find(' ') == std::string::npos;
    return set + (one ? "" : " is " + number(product)) + ", and " + devices(n) +
           " are given to a group; expected sizes whose product " + (free ? "divides " : "is ") + number(n) +
           ": change the sizes or the devices, and use replicas for more groups";
  }
  if (constraints.strategy && product == n && n > 1) {
    for (const AxisConstraint& axis : axes(constraints)) {
      if (axis.strategy == *constraints.strategy && !axis.size)
        return "strategy " + std::string(name_of(axis.strategy)) + ", but " + set + " take all " + devices(n) +
               "; leave some to it";
    }
  }
  return std::nullopt;
}

}  // namespace

std::string name_of(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair{"Tensor", sizes.tensor}, {"Pipeline", sizes.pipeline}, {"Data", sizes.data}}) {
    if (size > 1) text += (text.empty() ? "" : ", ") + std::string(name) + " x " + number(size);
  }
  return text.empty() ? "Tensor x 1" : text;
}

Strategy main_axis(const Sizes& sizes) {
  if (sizes.tensor >= sizes.pipeline && sizes.tensor >= sizes.data) return Strategy::Tensor;
  return sizes.pipeline >= sizes.data ? Strategy::Pipeline : Strategy::Data;
}

Choices choices(const Hardware& hardware, const PlanConstraints& constraints) {
  const int n = hardware.devices;
  if (n < 1 || n > max_devices) return refused(number(n) + " devices given; expected 1 to " + number(max_devices));
  if (auto wrong = contradiction(constraints, n)) return refused(*wrong);
  Choices out;
  out.fixed = constraints.strategy || constraints.tensor || constraints.pipeline || constraints.data;
  const auto wanted = [&](Strategy strategy, std::optional<int> size, int candidate) {
    if (!agrees(size, candidate)) return false;
    // an axis without constraint stays 1 when a strategy is given
    return !constraints.strategy || size || *constraints.strategy == strategy || candidate == 1 ||
           (*constraints.strategy == Strategy::Tensor     ? constraints.tensor
            : *constraints.strategy == Strategy::Pipeline ? constraints.pipeline
                                                          : constraints.data);
  };
  for (int tensor = n; tensor >= 1; --tensor) {
    if (n % tensor != 0 || !wanted(Strategy::Tensor, constraints.tensor, tensor)) continue;
    for (int pipeline = n / tensor; pipeline >= 1; --pipeline) {
      if (n / tensor % pipeline != 0) continue;
      const Sizes sizes{tensor, pipeline, n / tensor / pipeline};
      if (wanted(Strategy::Pipeline, constraints.pipeline, pipeline) &&
          wanted(Strategy::Data, constraints.data, sizes.data))
        out.sizes.push_back(sizes);
    }
  }
  return out;
}

HeadLimit head_limit(const ModelMetadata& metadata) {
  HeadLimit limit{std::numeric_limits<int64_t>::max(), ""};
  for (const StackMetadata& stack : metadata.stacks) {
    if (stack.heads > 0 && stack.heads < limit.heads)
      limit = {stack.heads, "the " + stack.name + " has " + number(stack.heads) + " attention heads"};
    if (const int64_t units = stack.recurrence.units; units > 0 && units < limit.heads)
      limit = {units, "the " + stack.name + " has recurrent layers of " + number(units) +
                          (units == 1 ? " group of heads" : " groups of heads")};
  }
  return limit.which.empty() ? HeadLimit{1, "the model has no attention heads"} : limit;
}

int64_t layer_count(const ModelMetadata& metadata) {
  int64_t layers = 0;
  for (const StackMetadata& stack : metadata.stacks) layers += stack.layers;
  return layers;
}

int devices_of_a_node(const Hardware& hardware) {
  if (hardware.devices_per_node <= 0 || hardware.devices_per_node >= hardware.devices) return hardware.devices;
  const int nodes = (hardware.devices + hardware.devices_per_node - 1) / hardware.devices_per_node;
  return (hardware.devices + nodes - 1) / nodes;
}

std::optional<Rejected> impossible(const ModelMetadata& metadata, const Hardware& hardware, const Sizes& sizes,
                                   bool across) {
  const HeadLimit limit = head_limit(metadata);
  const auto rejected = [&](Reason reason, const std::string& message) {
    return Rejected{name_of(sizes), name_of(reason), message, std::nullopt};
  };
  if (sizes.tensor > limit.heads) {
    return rejected(Reason::TooFewHeads, "tensor=" + number(sizes.tensor) + ", but " + limit.which +
                                             " and each rank needs at least one; use at most " + number(limit.heads));
  }
  const int64_t layers = layer_count(metadata);
  if (sizes.pipeline > std::max<int64_t>(layers, 1)) {
    return rejected(Reason::TooFewLayers,
                    "pipeline=" + number(sizes.pipeline) + ", but the model has " + number(layers) +
                        " layers and each stage needs at least one; use at most " + number(layers));
  }
  const int each = devices_of_a_node(hardware);
  if (!across && sizes.devices() > each &&
      each % sizes.tensor !=
          0) {  // ranks follow each other over the nodes, so a tensor group has to divide a node's share
    return rejected(Reason::SpansNodes,
                    devices(sizes.devices()) + " lie at " + number(each) + " on a node, so that a tensor group of " +
                        number(sizes.tensor) +
                        " would span nodes, and unless requested it stays inside one; use a tensor size that divides " +
                        number(each));
  }
  return std::nullopt;
}

}  // namespace pm
