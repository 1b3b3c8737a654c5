// Brings a model from the hub to a volume: only the files that a worker needs, each resumed where it was left, verified, and then moved to its name at once.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>

#include "worker/hub/cache.h"
#include "worker/hub/client.h"
#include "worker/hub/lock.h"

namespace pm::hub {

/// How far a download is: written by it, read by whoever shows it.
class Progress {
 public:
  struct View {
    std::string state = "Resolving";    ///< Resolving, Waiting (another one downloads to this volume), Fetching, Done
    std::string commit, waits_for;
    int64_t fetched = 0, total = 0;     ///< bytes on the volume, of the files that are needed
    int64_t received = 0;               ///< bytes that this process has got over the network
    int files = 0, files_done = 0;
    int64_t retries = 0, refetched = 0; ///< refetched: files whose checksum was wrong
    Trouble trouble;                    ///< the last one that is not over; reason "" without
  };
  View view() const;
  void update(const std::function<void(View&)>& change);
  void received(int64_t bytes);

 private:
  mutable std::mutex mutex_;
  View view_;
};

struct FetchOptions {
  Access access;
  std::filesystem::path cache;          ///< root of the cache on the volume
  int connections = 4;                  ///< files at once
  std::chrono::seconds patience{600};   ///< without a byte, then it is given up
  LockOptions lock;
};

struct Fetched {
  std::string commit;
  std::filesystem::path snapshot;       ///< the folder of the checkpoint
  int64_t bytes = 0;
  int files = 0;
};

/// Throws Error{Model, SourceUnreachable | AuthFailed | RevisionNotFound | ChecksumMismatch | InsufficientStorage | VolumeNotWritable | ModelUnreadable} and
/// Error{Interrupted} when `stop` is requested; what has come stays and is resumed by the next one.
Fetched fetch(const Repository&, const FetchOptions&, Progress&, std::stop_token stop);

}  // namespace pm::hub
