// The environment of a rank: its share of the CPUs, and threads that sleep rather than spin between parallel regions.
#pragma once
#include <string>
#include <vector>

namespace pm::launch {

/// Whole CPUs per rank, at least 1.
int threads_per_rank(int cpus, int ranks);
/// `inherited` (NAME=VALUE) and the OpenMP settings it does not set itself. Spinning threads starve the other ranks when CPUs are shared:
/// measured, a GEMV falls from 27 to 1 token/s beside busy neighbours with libgomp's default, to 7.6 with a passive wait.
std::vector<std::string> rank_environment(std::vector<std::string> inherited, int threads);
/// This process's environment.
std::vector<std::string> own_environment();

}  // namespace pm::launch
