// SPDX-License-Identifier: Apache-2.0
// Locks a volume for one download at a time. The lock is a file on the volume itself, which several nodes may mount,
// and expires when its holder dies.
//
// The lock is a file created with O_EXCL, which NFS and FUSE volumes perform on the server. flock() and fcntl() locks
// are not used because many such volumes keep them to one node, or never free them. The holder changes the file every
// few seconds. A waiter polls it and takes it over when it has not changed for a lease by the waiter's own clock, so
// that clocks of nodes are not compared.
//
// The lock only saves traffic and is not needed for correctness: files are named by their checksum and get that name
// after verification, so two writers of one file write the same bytes.
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
  std::chrono::milliseconds lease{30'000};  ///< a holder without heartbeat for this long is dead
  std::chrono::milliseconds beat{5'000};    ///< heartbeat interval of the holder
  std::chrono::milliseconds look{1'000};    ///< poll interval of waiters
  std::string owner;  ///< "": HOST:PID. An owner that finds its own name takes the lock over at once
};

class VolumeLock {
 public:
  /// Waits until this process holds the lock; `waiting` is called with the holder at each poll. `what` describes the
  /// work under the lock. Throws Error{Interrupted}, and Error{InsufficientStorage | VolumeNotWritable} when
  /// the file cannot be created.
  VolumeLock(std::filesystem::path file, const std::string& what, LockOptions options, std::stop_token stop,
             const std::function<void(const std::string& holder)>& waiting);
  /// Releases the lock, if this process still holds it.
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
