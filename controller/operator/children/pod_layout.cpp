// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/children/pod_layout.h"

#include <algorithm>

namespace pm::op {

namespace {
constexpr int64_t mib = int64_t{1} << 20, gib = int64_t{1} << 30;
int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
}  // namespace

int ranks_of(const Plan& plan) { return plan.tensor * plan.pipeline * plan.data; }

int PodLayout::node_of(int rank) const {
  for (int node = 0; node < nodes(); ++node) {
    if (rank < ranks[node]) return node;
    rank -= ranks[node];
  }
  return nodes() - 1;
}

PodLayout make_pod_layout(const Spec& spec, const Plan& plan) {
  const int all = ranks_of(plan);
  const int most = std::clamp(spec.devices.per_node, 1, all), nodes = (all + most - 1) / most,
            each = (all + nodes - 1) / nodes;
  PodLayout layout;
  for (int left = all; left > 0; left -= layout.ranks.back()) layout.ranks.push_back(std::min(each, left));

  const int64_t nccl = spec.devices.kind == DeviceKind::GPU && all > 1 ? each * 128 * mib : 0;
  layout.shm = round_up(spec.shm.value_or(std::max(plan.shm_bytes, mib) + nccl), mib);
  int64_t memory = 0;
  if (spec.memory) {
    memory = *spec.memory;
  } else if (spec.devices.kind == DeviceKind::GPU) {
    memory = each * (4 * gib + (plan.gathering ? round_up(plan.gathering->host, mib) : 0)) + 2 * gib;
  } else {
    std::vector<int64_t> pods(layout.ranks.size(), 0);
    for (const RankPlan& rank : plan.ranks)
      pods[layout.node_of(rank.rank)] += rank.predicted.total() + plan.adapter_bytes;
    if (plan.draft) pods[layout.node_of(0)] += plan.draft->bytes;
    memory = round_up(*std::max_element(pods.begin(), pods.end()) + each * 128 * mib + 256 * mib, mib);
  }
  layout.memory = memory + layout.shm;
  layout.cpu_limit_milli = spec.cpu_milli;
  layout.cpu_request_milli = spec.cpu_milli.value_or(each * int64_t{500});
  return layout;
}

}  // namespace pm::op
