// SPDX-License-Identifier: Apache-2.0
// Starts ranks as real processes: this test program again, in a role.
#pragma once
#include <string>
#include <vector>

namespace pm::comm::test {

/// Starts /proc/self/exe with --child and the arguments; returns the process id.
int start_child(const std::vector<std::string>& arguments);
/// Runs the role named by the first argument in the child; returns the exit code.
int run_child(const std::vector<std::string>& arguments);

}  // namespace pm::comm::test
