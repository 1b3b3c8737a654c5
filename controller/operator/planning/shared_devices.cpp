// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/shared_devices.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/byte_size.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

constexpr int64_t most_mebi = int64_t{1} << 40, most_pods = 1024;
const std::string mig = "nvidia.com/mig-", renamed = ".shared", marked = "-SHARED";

std::string labels_of(const std::string& resource) {
  if (!resource.starts_with(mig)) return "nvidia.com/gpu";
  return resource.ends_with(renamed) ? resource.substr(0, resource.size() - renamed.size()) : resource;
}

int64_t number(const k8s::Json& node, const std::string& label, int64_t most) {
  const int64_t value = parse_integer(k8s::label_of(node, label)).value_or(0);
  return value > 0 && value < most ? value : 0;
}

}  // namespace

DeviceLabels device_labels(const k8s::Json& node, const std::string& resource) {
  const std::string labels = labels_of(resource);
  DeviceLabels out{.memory = number(node, labels + ".memory", most_mebi) << 20,
                   .product = clip(k8s::label_of(node, labels + ".product"), 63)};
  if (k8s::label_of(node, labels + ".sharing-strategy") != "none")
    out.shared_by = std::max<int>(1, static_cast<int>(number(node, labels + ".replicas", most_pods)));
  if (out.product.ends_with(marked)) out.product.resize(out.product.size() - marked.size());
  return out;
}

int64_t left_of_device(const DeviceOffer& offer) {
  std::vector<int64_t> held = offer.held;
  const size_t beside = offer.devices > 0 ? held.size() / static_cast<size_t>(offer.devices) : held.size();
  std::ranges::sort(held, std::greater());
  held.resize(std::min(beside, held.size()));
  return std::max<int64_t>(0, offer.labels.memory - std::accumulate(held.begin(), held.end(), int64_t{0}));
}

std::string refuse_shares(const std::vector<DeviceOffer>& offers, int ranks, int64_t memory) {
  const DeviceOffer* most = nullptr;
  bool fits = offers.empty();
  for (const DeviceOffer& offer : offers) {
    const bool shared = offer.labels.shared_by > 1;
    if (shared && ranks > 1) {
      return "devices of " + offer.node + " are shared by " + std::to_string(offer.labels.shared_by) +
             " pods, and the " + std::to_string(ranks) +
             " ranks of a pod may be handed shares of one device, on which they cannot communicate: set devices.count "
             "to 1, or choose devices that are not shared by devices.resource or scheduling.nodeSelector";
    }
    fits = fits || !shared || offer.labels.memory == 0 || left_of_device(offer) >= memory;
    if (!most || left_of_device(offer) > left_of_device(*most)) most = &offer;
  }
  if (fits) return "";
  return "a rank uses " + base::format_bytes(memory) + ", and ranks of other ParallelModels leave " +
         base::format_bytes(left_of_device(*most)) + " of " + base::format_bytes(most->labels.memory) +
         " of a shared device on " + most->node + ": set a smaller devices.memory here or there";
}

}  // namespace pm::op
