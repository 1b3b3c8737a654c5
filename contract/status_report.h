// SPDX-License-Identifier: Apache-2.0
// The report of a replica at /status of the admin port: the launcher writes it, the controller reads it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/memory_bytes.h"

namespace pm {

/// The states of a rank, or of a replica, that serves and that has failed.
inline constexpr std::string_view ready_state = "Ready", failed_state = "Failed";

/// Device memory in bytes. `allocated`: in tensors, of what the rank's allocator has reserved.
struct DeviceMemory {
  int64_t total = 0, free = 0, reserved = 0, allocated = 0, communicator = 0;
};

/// CUDA graphs: captured batch sizes, replayed steps and bytes of device memory. `capture_failure` says why none is
/// captured where a capture has failed; else it is empty.
struct GraphUse {
  int64_t captured = 0, replayed = 0, bytes = 0;
  std::string capture_failure;
};

struct RankReport {
  int rank = 0;
  std::string state;                          ///< Starting, Loading, Ready, Draining or Failed
  int64_t load_bytes = 0, load_total = 0;     ///< loaded and to load
  std::optional<double> load_seconds;         ///< so far
  int64_t steps = 0;                          ///< of the engine
  std::optional<double> heartbeat_age;        ///< seconds since the last heartbeat; nullopt before the first
  std::optional<Memory> measured, predicted;  ///< predicted by the plan
  std::optional<DeviceMemory> device;         ///< nullopt on CPU
  std::optional<GraphUse> graphs;             ///< nullopt: none is captured, and no capture has failed
  std::string reason, message;                ///< of a failed rank
};

struct StatusReport {
  std::string state;  ///< Failed or Draining if any rank is, Ready or Starting if all are, else Loading
  bool ready = false;
  int64_t replica_generation = 0;
  std::vector<RankReport> ranks;
};

/// Returns {"weights", "kv", "activations", "communicator", "runtime", "total"} in bytes.
nlohmann::json to_json(const Memory&);
nlohmann::json to_json(const DeviceMemory&);
nlohmann::json to_json(const GraphUse&);
nlohmann::json to_json(const StatusReport&);
/// Reads the answer of a pod, which may be any JSON. Returns nullopt without a replica generation or a list of at most
/// 1024 ranks. An entry without a rank is left out. A number of bytes becomes one from 0 to 2^50, so that sums over
/// ranks do not overflow; any other field that cannot be read counts as absent.
std::optional<StatusReport> status_report_from_json(const nlohmann::json&);

}  // namespace pm
