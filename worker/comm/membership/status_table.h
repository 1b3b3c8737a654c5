// SPDX-License-Identifier: Apache-2.0
// Shares the status of ranks: one cache-line-aligned block of atomics per rank in shared memory, which the rank writes
// and the launcher and its admin server read. A thread of its own writes heartbeats, so that a stopped process falls
// silent.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "contract/reasons.h"

namespace pm::comm {

enum class RankState : uint32_t { Starting, Loading, Ready, Draining, Failed };

/// Bytes that a rank holds, by the terms of its plan's prediction. `Value` is an atomic in the table and an integer in
/// a snapshot, here and below.
template <typename Value>
struct MeasuredMemory {
  Value weights{0}, kv{0}, activations{0}, communicator{0}, runtime{0};
};

/// Bytes of a rank's device; all 0 on CPU.
template <typename Value>
struct DeviceUsage {
  Value total{0}, free{0};          ///< of all processes
  Value reserved{0}, allocated{0};  ///< taken by this rank's allocator; of that in tensors
  Value communicators{0};           ///< taken by this rank's communicators
};

/// CUDA graphs of a rank; all 0 without graphs.
template <typename Value>
struct GraphUsage {
  Value captured{0};  ///< batch sizes
  Value replayed{0};  ///< steps
  Value bytes{0};     ///< held by the graphs
};

/// A figure that one process writes and others read.
using SharedValue = std::atomic<int64_t>;

/// Read each figure once. Figures that the rank writes meanwhile may be of different moments.
MeasuredMemory<int64_t> snapshot(const MeasuredMemory<SharedValue>&);
DeviceUsage<int64_t> snapshot(const DeviceUsage<SharedValue>&);
GraphUsage<int64_t> snapshot(const GraphUsage<SharedValue>&);

/// The status of one rank. All-zero is a valid fresh block.
struct alignas(64) RankStatus {
  std::atomic<uint32_t> state{0};  ///< RankState
  std::atomic<int32_t> pid{0};
  std::atomic<int64_t> heartbeat_ns{0};  ///< steady_clock (CLOCK_MONOTONIC, the same for all processes of a host)
  std::atomic<int64_t> load_bytes{0}, load_total{0};
  std::atomic<int64_t> steps{0};          ///< engine steps this rank has done
  std::atomic<int64_t> open_requests{0};  ///< rank 0 only
  MeasuredMemory<SharedValue> measured;
  DeviceUsage<SharedValue> device;
  GraphUsage<SharedValue> graphs;
  std::atomic<uint32_t> capture_failed{0};  ///< 1 once capture_failure is written
  char capture_failure[256] = {};           ///< why the rank captures no CUDA graphs
  std::atomic<int64_t> load_seconds_milli{0};
  std::atomic<int32_t> port{0};  ///< port for ranks of other nodes; for a rank of another node written after `address`
  char address[60] = {};         ///< address of the node, for a rank of another node
  std::atomic<uint32_t> failed{0};  ///< 1 once reason and message are written
  int32_t exit_code = 0;
  char reason[64] = {};
  char message[512] = {};
};

/// Records why a rank captures no CUDA graphs; the first reason stays. Longer texts are truncated. Called by the thread
/// that writes the rank's status.
void report_capture_failure(RankStatus&, const std::string& reason);

class StatusTable {
 public:
  /// Makes blocks of n ranks in the memory of this process (tests, single-process serve).
  static std::shared_ptr<StatusTable> in_process(int n);
  /// Creates /dev/shm/<segment>.status for n ranks, removing a stale one. Called by the launcher.
  static std::shared_ptr<StatusTable> create(const std::string& segment, int n);
  /// Opens the table of the segment, as ranks do. Throws Error{RankLost} when the file is missing or of another size.
  static std::shared_ptr<StatusTable> open(const std::string& segment, int n);
  virtual ~StatusTable() = default;
  virtual int size() const = 0;
  virtual RankStatus& rank(int r) = 0;
  /// Returns the time at which the loop of the launcher last ran (steady_clock ns); 0 without a launcher.
  virtual std::atomic<int64_t>& launcher_heartbeat_ns() = 0;
  /// Returns the token by which ranks of a group over several nodes authenticate each other; all-zero until the
  /// launchers are connected.
  virtual std::array<std::atomic<uint64_t>, 2>& token() = 0;

  /// Records why rank `r` failed; the first reason stays. Longer texts are truncated.
  void fail(int r, Reason reason, const std::string& message, int exit_code);
};

/// Writes the process id of one rank once and touches its heartbeat_ns every 200 ms from its own thread until
/// destroyed.
class Heartbeat {
 public:
  Heartbeat(std::shared_ptr<StatusTable> status_table, int rank);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::comm
