// See measure.h.
#include "worker/engine/measure.h"

#include <algorithm>
#include <fstream>

#include "worker/ops/arena.h"
#include "worker/ops/device_memory.h"

namespace pm::engine {

namespace {

constexpr int64_t steps_between_looks = 64;   ///< asking the driver costs some microseconds

/// Resident bytes of this process, from the kernel; 0 where it does not say.
int64_t resident_bytes() {
  std::string key;
  int64_t kibibytes = 0;
  for (std::ifstream in("/proc/self/status"); in >> key; in.ignore(256, '\n')) {
    if (key == "VmRSS:" && in >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

void show_device(parallel::Executor& executor, comm::RankStatus& status) {
  const ops::DeviceMemory memory = ops::device_memory(executor.device());
  const int64_t kept = executor.weight_bytes() + executor.kv_bytes();
  status.measured[2] = std::max<int64_t>(status.measured[2], memory.peak_allocated - kept);
  const int64_t of_activations = std::clamp<int64_t>(memory.reserved - kept, 0, status.measured[2]);
  const int64_t communicators = executor.communicator().device_bytes();
  status.measured[4] = std::max<int64_t>(0, memory.total - memory.free - kept - of_activations - communicators);
  const int64_t figures[] = {memory.total, memory.free, memory.reserved, memory.allocated, communicators};
  for (size_t i = 0; i < std::size(figures); ++i) status.device[i] = figures[i];
}

void show_graphs(const parallel::Executor& executor, comm::RankStatus& status) {
  const parallel::GraphCounts counts = executor.graphs();
  status.graphs[0] = counts.recorded;
  status.graphs[1] = counts.replayed;
  if (counts.recorded == 0) status.graphs[2] = 0;
}

}  // namespace

void show_loaded(parallel::Executor& executor, comm::RankStatus& status) {
  status.measured[0] = executor.weight_bytes();
  status.measured[1] = executor.kv_bytes();
  if (executor.device().is_cpu()) {
    status.measured[4] = std::max<int64_t>(0, resident_bytes() - status.measured[0]);   // KV pages are not touched yet
    ops::reset_peak();
  } else {
    ops::reset_peak(executor.device());
    show_device(executor, status);
    show_graphs(executor, status);
  }
}

void show_step(parallel::Executor& executor, comm::RankStatus& status) {
  if (executor.device().is_cpu()) {
    status.measured[2] = ops::peak_bytes();
    return;
  }
  show_graphs(executor, status);
  if (status.steps % steps_between_looks <= 1) show_device(executor, status);
}

}  // namespace pm::engine
