// SPDX-License-Identifier: Apache-2.0
// Makes the environment of a rank: its share of the CPUs, and threads that sleep rather than spin between parallel
// regions.
#pragma once
#include <string>
#include <vector>

namespace pm::launch {

/// Returns the whole CPUs per rank, at least 1.
int threads_per_rank(int cpus, int ranks);
/// Returns `inherited` (NAME=VALUE) with the OpenMP settings that it does not set itself. Spinning threads starve other
/// ranks when CPUs are shared: a GEMV was measured to fall from 27 to 1 token/s beside busy neighbours with the default
/// of libgomp, and to 7.6 with a passive wait.
std::vector<std::string> rank_environment(std::vector<std::string> inherited, int threads);
/// Returns the environment of this process.
std::vector<std::string> own_environment();

}  // namespace pm::launch
