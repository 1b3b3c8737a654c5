// SPDX-License-Identifier: Apache-2.0
// Downloads a model from the hub to a volume: only the files that a worker needs, each resumed, verified, and then
// moved to its name atomically.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/transfer.h"
#include "worker/hub/cache.h"
#include "worker/hub/client.h"
#include "worker/hub/lock.h"

namespace pm::hub {

/// The progress of a download, shared between threads.
class Progress {
 public:
  struct View {
    std::string state = "Resolving";  ///< Resolving, Waiting (another process downloads to this volume), Fetching, Done
    std::string commit, waits_for;
    int64_t fetched = 0, total = 0;  ///< bytes on the volume, of the needed files
    int64_t received = 0;            ///< bytes that this process received over the network
    double bytes_per_second = 0;     ///< received in the last seconds
    int files = 0, files_done = 0;
    int64_t retries = 0, refetched = 0;  ///< refetched: files whose checksum was wrong
    std::optional<FetchError> error;     ///< the last unresolved error
  };
  View view() const;
  void update(const std::function<void(View&)>& change);
  void received(int64_t bytes);

 private:
  mutable std::mutex mutex_;
  View view_;
  base::RateMeter rate_;
};

struct FetchOptions {
  Access access;
  std::filesystem::path cache;              ///< root of the cache on the volume
  int connections = 4;                      ///< concurrent files
  std::chrono::seconds stall_timeout{600};  ///< the longest time without a byte before the download fails
  LockOptions lock;
};

struct Fetched {
  std::string commit;
  std::filesystem::path snapshot;  ///< the folder of the checkpoint
  int64_t bytes = 0;
  int files = 0;
};

/// Throws Error{SourceUnreachable | AuthFailed | RevisionNotFound | ChecksumMismatch | InsufficientStorage |
/// VolumeNotWritable | ModelUnreadable} and Error{Interrupted} when `stop` is requested. Partial files stay and are
/// resumed by the next download.
Fetched fetch(const Repository&, const FetchOptions&, Progress&, std::stop_token stop);

}  // namespace pm::hub
