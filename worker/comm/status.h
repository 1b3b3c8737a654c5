// The status board: one cache-line-aligned block of atomics per rank in shared memory, written by the rank, read by the launcher
// and its ops port without asking anybody. Heartbeats come from a thread of their own, so that a stopped process falls silent.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace pm::comm {

enum class RankState : uint32_t { Starting, Loading, Ready, Draining, Failed };

/// All-zero is a valid fresh block.
struct alignas(64) RankStatus {
  std::atomic<uint32_t> state{0};            ///< RankState
  std::atomic<int32_t> pid{0};
  std::atomic<int64_t> heartbeat_ns{0};      ///< steady_clock (CLOCK_MONOTONIC, the same for all processes of a host)
  std::atomic<int64_t> load_bytes{0}, load_total{0};
  std::atomic<int64_t> steps{0};             ///< engine steps this rank has done
  std::atomic<int64_t> open_requests{0};     ///< rank 0 only
  std::array<std::atomic<int64_t>, 5> measured{};   ///< bytes: weights, kv, activations, communicator, runtime
  std::array<std::atomic<int64_t>, 5> device{};     ///< bytes of the rank's device: total, free, reserved and allocated by this rank, taken by its communicators; all 0 on the processor
  std::array<std::atomic<int64_t>, 3> graphs{};     ///< recorded sizes of batches, steps that were run as such, bytes that they hold; all 0 where nothing is recorded
  std::atomic<int64_t> load_seconds_milli{0};
  std::atomic<int32_t> port{0};              ///< where the rank listens for ranks of other nodes; of a rank of another node written after `address`
  char address[60] = {};                     ///< of the node of a rank of another node
  std::atomic<uint32_t> failed{0};           ///< 1: set after reason and message are written
  int32_t exit_code = 0;
  char reason[64] = {};
  char message[512] = {};
};

class StatusBoard {
 public:
  /// Blocks of n ranks in the memory of this process (tests, single-process serve).
  static std::shared_ptr<StatusBoard> in_process(int n);
  /// The launcher's side: creates /dev/shm/<segment>.status for n ranks, removing a stale one.
  static std::shared_ptr<StatusBoard> create(const std::string& segment, int n);
  /// A rank's side. Throws Error{RankLost} when the file is missing or of another size.
  static std::shared_ptr<StatusBoard> open(const std::string& segment, int n);
  virtual ~StatusBoard() = default;
  virtual int size() const = 0;
  virtual RankStatus& rank(int r) = 0;
  /// When the launcher's loop last ran (steady_clock ns); 0 without a launcher.
  virtual std::atomic<int64_t>& launcher_ns() = 0;
  /// What ranks of a group over several nodes know each other by; all-zero until the launchers have met.
  virtual std::array<std::atomic<uint64_t>, 2>& token() = 0;

  /// Records why `r` fails; the first reason stays. Truncates.
  void fail(int r, const std::string& reason, const std::string& message, int exit_code);
};

/// Writes the process id of one rank once and touches its heartbeat_ns every 200 ms from its own thread until destroyed.
class Heartbeat {
 public:
  Heartbeat(std::shared_ptr<StatusBoard> board, int rank);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::comm
