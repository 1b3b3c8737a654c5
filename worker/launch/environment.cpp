// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/environment.h"

#include <unistd.h>

#include <algorithm>

namespace pm::launch {

int threads_per_rank(int cpus, int ranks) { return std::max(1, cpus / std::max(1, ranks)); }

std::vector<std::string> rank_environment(std::vector<std::string> inherited, int threads) {
  const auto set_default = [&](const std::string& name, const std::string& value) {
    const bool is_set = std::any_of(inherited.begin(), inherited.end(),
                                    [&](const std::string& line) { return line.starts_with(name + "="); });
    if (!is_set) inherited.push_back(name + "=" + value);
  };
  set_default("OMP_NUM_THREADS", std::to_string(threads));
  set_default("OMP_WAIT_POLICY", "PASSIVE");
  set_default("GOMP_SPINCOUNT", "200");  // turns of a pause instruction: about 10 us
  return inherited;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> out;
  for (char** line = environ; *line != nullptr; ++line) out.emplace_back(*line);
  return out;
}

}  // namespace pm::launch
