// SPDX-License-Identifier: Apache-2.0
// Detects whether this machine has a GPU: a test may be skipped for want of one only where it has none.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace pm::cuda_test {

/// Returns whether the system has a device node of a GPU: /dev/nvidia0, /dev/nvidia1, ... If so, a driver that does not
/// answer and devices hidden from this process are failures. PM_GPU_NODES names another folder, where a test simulates
/// a machine (tests/gpu).
inline bool gpu_present() {
  const char* folder = std::getenv("PM_GPU_NODES");
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder ? folder : "/dev", none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos)
      return true;
  }
  return false;
}

}  // namespace pm::cuda_test
