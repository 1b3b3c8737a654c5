// SPDX-License-Identifier: Apache-2.0
// Owns the files of a group in /dev/shm while the launcher lives.
#pragma once
#include <memory>
#include <string>

#include "worker/comm/membership/status_table.h"

namespace pm::launch {

/// Creates the segment and the status table of a group and removes them when destroyed. A lock on the table tells other
/// launchers that it is in use.
class GroupFiles {
 public:
  GroupFiles(const std::string& segment, int ranks, int64_t bytes_per_rank);
  ~GroupFiles();
  GroupFiles(const GroupFiles&) = delete;
  GroupFiles& operator=(const GroupFiles&) = delete;
  const std::shared_ptr<comm::StatusTable>& status_table() const { return status_table_; }

 private:
  std::string segment_;
  std::shared_ptr<comm::StatusTable> status_table_;
  int lock_ = -1;
};

/// Removes the files of launchers that were killed: names of segment_name() that are unlocked and older than 10 s.
/// Returns the number of groups.
int remove_stale_groups();

}  // namespace pm::launch
