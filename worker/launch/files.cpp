// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/shared_memory/shm_file.h"
#include "worker/launch/launcher.h"

namespace pm::launch {
namespace {

constexpr const char* prefix = "parallelmodel-";
constexpr int young_seconds = 10;  // a younger file may belong to a launcher that has not locked it yet

/// Removes the segment and all files that are named after it.
void remove_files_of(const std::string& segment) {
  std::error_code ignored;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == segment || name.starts_with(segment + ".")) files.push_back(entry.path());
  }
  for (const auto& file : files) std::filesystem::remove(file, ignored);
}

/// Returns the segment of a status table file that segment_name() named, parallelmodel-DIGITS-DIGITS.status, else
/// nothing.
std::optional<std::string> segment_of_board(std::string_view file) {
  constexpr std::string_view ending = ".status";
  if (!file.starts_with(prefix) || !file.ends_with(ending)) return std::nullopt;
  file.remove_suffix(ending.size());
  const std::string_view numbers = file.substr(std::string_view(prefix).size());
  const bool shaped = std::count(numbers.begin(), numbers.end(), '-') == 1 && !numbers.starts_with('-') &&
                      !numbers.ends_with('-') && numbers.find_first_not_of("0123456789-") == std::string_view::npos;
  return shaped ? std::optional<std::string>(file) : std::nullopt;
}

std::string status_table_path(const std::string& segment) { return comm::ShmFile::path(segment + ".status"); }

}  // namespace

std::string segment_name(int64_t replica_generation) {
  return prefix + std::to_string(getpid()) + "-" + std::to_string(replica_generation);
}

GroupFiles::GroupFiles(const std::string& segment, int ranks, int64_t bytes_per_rank) : segment_(segment) {
  comm::create_segment(segment, ranks, bytes_per_rank);
  try {
    status_table_ = comm::StatusTable::create(segment, ranks);
  } catch (...) {
    comm::ShmFile::remove(segment);
    throw;
  }
  lock_ = open(status_table_path(segment).c_str(), O_RDONLY | O_CLOEXEC);
  if (lock_ >= 0) flock(lock_, LOCK_SH | LOCK_NB);
}

GroupFiles::~GroupFiles() {
  comm::ShmFile::remove(segment_);
  comm::ShmFile::remove(segment_ + ".status");
  if (lock_ >= 0) close(lock_);
}

int remove_stale_groups() {
  std::vector<std::string> candidates;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored))
    if (auto segment = segment_of_board(entry.path().filename().string())) candidates.push_back(*std::move(segment));
  int removed = 0;
  for (const std::string& segment : candidates) {
    const int file = open(status_table_path(segment).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;  // the file belongs to another user
    struct stat info{};
    const bool old = fstat(file, &info) == 0 && time(nullptr) - info.st_ctime > young_seconds;
    if (old && flock(file, LOCK_EX | LOCK_NB) == 0) {
      remove_files_of(segment);
      ++removed;
    }
    close(file);
  }
  return removed;
}

}  // namespace pm::launch
