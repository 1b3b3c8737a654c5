// Which devices ranks run on.
#pragma once
#include <c10/core/Device.h>

#include <string>

namespace pm::engine {

/// The kind of device that `name` means: cpu, or an accelerator that this program was built with (cuda). Throws Error{Usage, "NoDevice"} when it was
/// built without it, or this host has none.
at::DeviceType device_type(const std::string& name);

/// The device of the rank with this number on its node; where there are fewer devices than ranks, they share them in turn.
at::Device device_of(at::DeviceType, int rank);

}  // namespace pm::engine
