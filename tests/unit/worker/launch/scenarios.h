// SPDX-License-Identifier: Apache-2.0
// Runs this test program in other roles: as a launcher, and as the ranks that the launcher starts.
#pragma once
#include <string>
#include <vector>

namespace pm::launch::test {

/// Runs the launcher for --launch SCENARIO SEGMENT RANKS MESSAGE_FILE; returns its exit code.
int run_launcher(const std::vector<std::string>& arguments);
/// Runs one rank for --rank SCENARIO SEGMENT RANKS RANK; returns its exit code.
int run_rank(const std::vector<std::string>& arguments);

}  // namespace pm::launch::test
