// Ranks as real processes: this test program started again in a role.
#pragma once
#include <string>
#include <vector>

namespace pm::comm::test {

/// Starts /proc/self/exe with --child and the arguments; returns the process id.
int start_child(const std::vector<std::string>& arguments);
/// The child's side: runs the role named by the first argument, returns the exit code.
int run_child(const std::vector<std::string>& arguments);

}  // namespace pm::comm::test
