// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/rank_memory.h"

#include <algorithm>
#include <fstream>

#include "worker/ops/arena.h"
#include "worker/ops/device_memory.h"

namespace pm::engine {

namespace {

constexpr int64_t steps_between_driver_queries = 64;  ///< a query of the driver costs microseconds

/// Resident bytes of this process as the kernel reports them; 0 if unknown.
int64_t resident_bytes() {
  std::string key;
  int64_t kibibytes = 0;
  for (std::ifstream in("/proc/self/status"); in >> key; in.ignore(256, '\n')) {
    if (key == "VmRSS:" && in >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

/// Weights, and the memory of adapters beside them.
int64_t weight_bytes(parallel::Executor& executor) {
  return executor.weight_bytes() + (executor.adapters() ? executor.adapters()->bytes() : 0);
}

void report_device(parallel::Executor& executor, comm::RankStatus& status) {
  const ops::DeviceMemory memory = ops::device_memory(executor.device());
  const int64_t weights_and_kv = weight_bytes(executor) + executor.kv_bytes() + executor.state_bytes();
  status.measured.activations = std::max<int64_t>(status.measured.activations, memory.peak_allocated - weights_and_kv);
  const int64_t of_activations = std::clamp<int64_t>(memory.reserved - weights_and_kv, 0, status.measured.activations);
  const int64_t communicators = executor.communicator().device_bytes();
  status.measured.runtime =
      std::max<int64_t>(0, memory.total - memory.free - weights_and_kv - of_activations - communicators);
  status.device.total = memory.total;
  status.device.free = memory.free;
  status.device.reserved = memory.reserved;
  status.device.allocated = memory.allocated;
  status.device.communicators = communicators;
}

void report_graphs(parallel::Executor& executor, comm::RankStatus& status) {
  const parallel::GenerationExecutor* generation = executor.generation();
  const parallel::GraphCounts counts = generation ? generation->graphs() : parallel::GraphCounts{};
  status.graphs.captured = counts.captured;
  status.graphs.replayed = counts.replayed;
  if (counts.captured == 0) status.graphs.bytes = 0;
  if (!counts.failure.empty()) comm::report_capture_failure(status, counts.failure);
}

}  // namespace

void report_loaded(parallel::Executor& executor, comm::RankStatus& status) {
  status.measured.weights = weight_bytes(executor);
  status.measured.kv = executor.kv_bytes() + executor.state_bytes();
  if (executor.device().is_cpu()) {
    status.measured.runtime =
        std::max<int64_t>(0, resident_bytes() - status.measured.weights);  // KV pages are not touched yet
    ops::reset_peak();
  } else {
    ops::reset_peak(executor.device());
    report_device(executor, status);
    report_graphs(executor, status);
  }
}

void report_step(parallel::Executor& executor, comm::RankStatus& status) {
  if (executor.device().is_cpu()) {
    status.measured.activations = ops::peak_bytes();
    return;
  }
  report_graphs(executor, status);
  if (status.steps % steps_between_driver_queries <= 1) report_device(executor, status);
}

}  // namespace pm::engine
