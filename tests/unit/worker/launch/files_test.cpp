// SPDX-License-Identifier: Apache-2.0
// Tests the files of groups in /dev/shm, and those of killed launchers.
#include "worker/launch/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "worker/comm/shared_memory/shm_file.h"
#include "worker/launch/launcher.h"

namespace pm::launch {
namespace {

bool exists(const std::string& name) { return std::filesystem::exists(comm::ShmFile::path(name)); }

TEST(GroupFiles, LiveAsLongAsTheirOwner) {
  const std::string name = segment_name(101);
  {
    const GroupFiles files(name, 2, 1 << 16);
    EXPECT_TRUE(exists(name));
    EXPECT_TRUE(exists(name + ".status"));
    EXPECT_EQ(files.status_table()->size(), 2);
  }
  EXPECT_FALSE(exists(name));
  EXPECT_FALSE(exists(name + ".status"));
}

TEST(GroupFiles, NamesDifferByProcessAndReplicaGeneration) {
  EXPECT_EQ(segment_name(7), "parallelmodel-" + std::to_string(getpid()) + "-7");
  EXPECT_NE(segment_name(7), segment_name(8));
}

TEST(GroupFiles, YoungFilesOfOthersAreLeftAlone) {
  const std::string name = segment_name(102);
  {
    const auto status_table = comm::StatusTable::create(name, 1);
  }
  remove_stale_groups();
  EXPECT_TRUE(exists(name + ".status"));
  comm::ShmFile::remove(name + ".status");
}

}  // namespace
}  // namespace pm::launch
