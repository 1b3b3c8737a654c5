// SPDX-License-Identifier: Apache-2.0
// Injects faults into graph captures of the fake device (graphs.h), for tests in this process.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

namespace pm::fake_device {

/// Lets captures on a device fail for a scope, or none of them.
class CaptureFault {
 public:
  CaptureFault() : before_(device_before()) { unsetenv("PM_FAKE_NO_GRAPHS_ON"); }
  CaptureFault(int device, const char* kind) : before_(device_before()) {
    setenv("PM_FAKE_NO_GRAPHS_ON", std::to_string(device).c_str(), 1);
    setenv("PM_FAKE_CAPTURE_FAULT", kind, 1);
  }
  ~CaptureFault() {
    if (before_)
      setenv("PM_FAKE_NO_GRAPHS_ON", before_->c_str(), 1);
    else
      unsetenv("PM_FAKE_NO_GRAPHS_ON");
  }
  CaptureFault(const CaptureFault&) = delete;
  CaptureFault& operator=(const CaptureFault&) = delete;

 private:
  static std::optional<std::string> device_before() {
    const char* device = std::getenv("PM_FAKE_NO_GRAPHS_ON");
    return device ? std::optional<std::string>(device) : std::nullopt;
  }
  const std::optional<std::string> before_;
};

}  // namespace pm::fake_device
