// SPDX-License-Identifier: Apache-2.0
// Counts the CPUs that this process may use, from its affinity mask and the quotas of its cgroups (v1 and v2).
#pragma once
#include <string>

namespace pm::comm {

/// Paths at which the kernel shows cgroups; tests pass others.
struct CgroupFiles {
  std::string mount = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

/// Returns the CPUs that the tightest quota of the cgroup of this process and its parents grants; 0 without a quota.
double cpu_quota(const CgroupFiles& files = {});
/// Returns how many processes of the memory cgroup were killed for lack of memory; 0 when the kernel does not say.
long oom_kills(const CgroupFiles& files = {});
/// Returns the smaller of the affinity mask and the quota, at least 1.
int available_cpus();

}  // namespace pm::comm
