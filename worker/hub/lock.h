// One download per volume: a lock that lives on the volume itself, also one that several nodes mount, and that outlives no dead holder for long.
//
// A file made with O_EXCL, which NFS and FUSE volumes do on the server; flock() and fcntl() locks are left alone because many of them keep those to one node, or never
// free them. The holder changes the file every few seconds. Who waits reads it again and again and takes it over when it has stood still for a
// lease by the waiter's own clock, so that clocks of nodes are not compared.
//
// Nothing depends on it but the traffic: bytes are named by their checksum and only move to that name when it is right, so two writers of one
// file write the same bytes to the same places, as long as the hub serves the right ones.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace pm::hub {

struct LockOptions {
  std::chrono::milliseconds lease{30'000};      ///< standing still for so long means that the holder is dead
  std::chrono::milliseconds beat{5'000};        ///< how often the holder shows that it lives
  std::chrono::milliseconds look{1'000};        ///< how often one who waits looks
  std::string owner;                            ///< "": HOST:PID. One that finds its own name takes the lock over at once
};

class VolumeLock {
 public:
  /// Waits until the lock is ours; `waiting` is told each time who has it. `what` tells people what is done under it. Throws Error{Interrupted}, and Error{Model,
  /// "InsufficientStorage" | "VolumeNotWritable"} when the file cannot be made.
  VolumeLock(std::filesystem::path file, const std::string& what, LockOptions options, std::stop_token stop, const std::function<void(const std::string& holder)>& waiting);
  /// Gives it back, if it is still ours.
  ~VolumeLock();
  VolumeLock(const VolumeLock&) = delete;
  VolumeLock& operator=(const VolumeLock&) = delete;

 private:
  bool take();
  bool ours() const;
  void break_lock(const std::string& judged);
  void beat(std::stop_token, std::chrono::milliseconds every);
  std::string contents(long beats) const;

  const std::filesystem::path file_;
  const std::string owner_, nonce_, what_;
  std::jthread beats_;
};

}  // namespace pm::hub
