// This test program in other roles: as a launcher, and as the ranks that launcher starts.
#pragma once
#include <string>
#include <vector>

namespace pm::launch::test {

/// --launch SCENARIO SEGMENT RANKS MESSAGE_FILE: runs the launcher; returns its exit code.
int run_launcher(const std::vector<std::string>& arguments);
/// --rank SCENARIO SEGMENT RANKS RANK: the life of one rank; returns its exit code.
int run_rank(const std::vector<std::string>& arguments);

}  // namespace pm::launch::test
