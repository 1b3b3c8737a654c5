// See device.cpp. Linked into a program, it registers the device "pretend".
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::pretend {

/// A tensor of the processor over the memory behind a pretended device's; others as they are. What tests and pretended kernels read and write.
at::Tensor host_view(const at::Tensor&);
/// The memory behind an address of a pretended device; other addresses as they are.
void* host_address(const void*);

}  // namespace pm::pretend
