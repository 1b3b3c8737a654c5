// SPDX-License-Identifier: Apache-2.0
// Reads cgroup files. v2: cpu.max holds "QUOTA PERIOD" or "max PERIOD"; v1: cpu.cfs_quota_us (-1 = none) over
// cpu.cfs_period_us.
#include "worker/comm/wait/cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace pm::comm {
namespace {

struct Member {
  std::string controllers, path;
};

std::vector<Member> members(const std::string& self) {
  std::vector<Member> out;
  std::ifstream file(self);
  for (std::string line; std::getline(file, line);) {  // "hierarchy:controllers:path"
    const auto a = line.find(':'), b = line.find(':', a + 1);
    if (a != std::string::npos && b != std::string::npos)
      out.push_back({line.substr(a + 1, b - a - 1), line.substr(b + 1)});
  }
  return out;
}

bool has_controller(const Member& m, const std::string& name) {
  std::stringstream list(m.controllers);
  for (std::string item; std::getline(list, item, ',');)
    if (item == name) return true;
  return false;
}

/// Returns the folder of the cgroup and of each of its parents, innermost first. In a container the path may lie
/// outside the mount; then the mount itself counts.
std::vector<std::string> folders(const std::string& mount, std::string path) {
  std::vector<std::string> out;
  while (!path.empty() && path != "/") {
    out.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  out.push_back(mount);
  return out;
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

double quota_v2(const std::string& folder) {
  const auto line = first_line(folder + "/cpu.max");
  double quota = 0, period = 0;
  if (!line || !(std::istringstream(*line) >> quota >> period) || period <= 0) return 0;
  return quota / period;
}

double quota_v1(const std::string& folder) {
  const auto quota = first_line(folder + "/cpu.cfs_quota_us"), period = first_line(folder + "/cpu.cfs_period_us");
  double q = 0, p = 0;
  if (!quota || !period || !(std::istringstream(*quota) >> q) || !(std::istringstream(*period) >> p) || q <= 0 ||
      p <= 0)
    return 0;
  return q / p;
}

std::optional<long> named_count(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (long value = 0; file >> key >> value;)
    if (key == name) return value;
  return std::nullopt;
}

/// Returns the mount points to try for a hierarchy: v2 may be mounted beside v1 under "unified".
std::vector<std::string> mounts(const CgroupFiles& files, const Member& m) {
  if (m.controllers.empty()) return {files.mount, files.mount + "/unified"};
  std::vector<std::string> out{files.mount + "/" + m.controllers};
  std::stringstream list(m.controllers);
  for (std::string item; std::getline(list, item, ',');) out.push_back(files.mount + "/" + item);
  return out;
}

}  // namespace

double cpu_quota(const CgroupFiles& files) {
  double best = 0;
  for (const Member& m : members(files.self)) {
    if (!m.controllers.empty() && !has_controller(m, "cpu")) continue;
    for (const std::string& mount : mounts(files, m))
      for (const std::string& folder : folders(mount, m.path)) {
        const double quota = m.controllers.empty() ? quota_v2(folder) : quota_v1(folder);
        if (quota > 0 && (best == 0 || quota < best)) best = quota;
      }
  }
  return best;
}

long oom_kills(const CgroupFiles& files) {
  for (const Member& m : members(files.self)) {
    if (!m.controllers.empty() && !has_controller(m, "memory")) continue;
    for (const std::string& mount : mounts(files, m))
      for (const std::string& folder : folders(mount, m.path))
        for (const char* name : {"/memory.events", "/memory.oom_control"})
          if (const auto count = named_count(folder + name, "oom_kill")) return *count;
  }
  return 0;
}

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double quota = cpu_quota();
  return std::max(1, quota > 0 ? std::min(allowed, static_cast<int>(quota)) : allowed);
}

}  // namespace pm::comm
