// SPDX-License-Identifier: Apache-2.0
// Tests CPU quotas and OOM counters with trees of cgroup files, as the kernel shows them.
#include "worker/comm/wait/cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace pm::comm {
namespace {

class Cgroups : public testing::Test {
 protected:
  Cgroups() { std::filesystem::remove_all(root); }
  ~Cgroups() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  CgroupFiles files() const { return {(root / "mount").string(), (root / "self").string()}; }
  const std::filesystem::path root = std::filesystem::temp_directory_path() / ("cgroups-" + std::to_string(getpid()));
};

TEST_F(Cgroups, Version2TakesTheTightestQuotaOfTheGroupAndItsParents) {
  write("self", "0::/pods/a\n");
  write("mount/pods/cpu.max", "150000 100000\n");
  write("mount/pods/a/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(files()), 1.5);
}

TEST_F(Cgroups, InAContainerTheMountItselfIsTheGroup) {
  write("self", "0::/\n");
  write("mount/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(files()), 4);
}

TEST_F(Cgroups, Version1ReadsQuotaAndPeriod) {
  write("self", "3:cpu,cpuacct:/docker/x\n9:memory:/docker/x\n");
  write("mount/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "250000\n");
  write("mount/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cpu_quota(files()), 2.5);
}

TEST_F(Cgroups, NoQuotaIsZero) {
  write("self", "3:cpu:/\n0::/\n");
  write("mount/cpu/cpu.cfs_quota_us", "-1\n");
  write("mount/cpu/cpu.cfs_period_us", "100000\n");
  write("mount/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(files()), 0);
  EXPECT_EQ(cpu_quota({"/nowhere", "/nowhere"}), 0);
  EXPECT_GE(available_cpus(), 1);
}

TEST_F(Cgroups, CountsOomKillsInBothVersions) {
  write("self", "0::/a\n");
  write("mount/a/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n");
  EXPECT_EQ(oom_kills(files()), 2);
  write("self", "9:memory:/b\n");
  write("mount/memory/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(oom_kills(files()), 5);
}

}  // namespace
}  // namespace pm::comm
