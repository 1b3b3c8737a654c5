// How many CPUs this process may use: its affinity mask and the quotas of its cgroups (v1 and v2).
#pragma once
#include <string>

namespace pm::comm {

/// Where the kernel shows cgroups; a parameter for tests.
struct CgroupFiles {
  std::string mount = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

/// CPUs granted by the tightest quota of this process's cgroup and its parents; 0 when there is none.
double cpu_quota(const CgroupFiles& files = {});
/// Processes killed so far in this process's memory cgroup for lack of memory; 0 when the kernel does not say.
long oom_kills(const CgroupFiles& files = {});
/// The smaller of the affinity mask and the quota, at least 1.
int available_cpus();

}  // namespace pm::comm
