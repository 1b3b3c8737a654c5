// The files of a group in /dev/shm, for as long as the launcher lives.
#pragma once
#include <memory>
#include <string>

#include "worker/comm/status.h"

namespace pm::launch {

/// Creates the segment and the status board of a group and removes them when destroyed. A lock on the board tells other launchers that it is in use.
class GroupFiles {
 public:
  GroupFiles(const std::string& segment, int ranks, int64_t bytes_per_rank);
  ~GroupFiles();
  GroupFiles(const GroupFiles&) = delete;
  GroupFiles& operator=(const GroupFiles&) = delete;
  const std::shared_ptr<comm::StatusBoard>& board() const { return board_; }

 private:
  std::string segment_;
  std::shared_ptr<comm::StatusBoard> board_;
  int lock_ = -1;
};

/// Removes the files of launchers that were killed: names of segment_name() whose lock nobody holds and that are older than 10 s. Returns how many groups.
int remove_stale_groups();

}  // namespace pm::launch
