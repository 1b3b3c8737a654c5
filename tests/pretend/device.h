// See device.cpp. Linked into a program, it registers the device "pretend".
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace pm::pretend {

/// A tensor of the processor over the memory behind a pretended device's; others as they are. What tests and pretended kernels read and write.
at::Tensor host_view(const at::Tensor&);
/// All that the calling thread's current stream of a pretended device was given is done when this returns: called before work that is not put off.
void catch_up(at::Device);
/// The memory behind an address of a pretended device; other addresses as they are.
void* host_address(const void*);

/// As a library does that takes memory of a device beside the allocator; negative: gives it back.
void take_beside(int device, int64_t bytes);

/// What is done on the device while launches are recorded, to be done again on the same memory. As on a GPU nothing may be read on the host, nor copied to or from it.
struct Recording {
  std::vector<std::function<void()>> steps;
  std::vector<at::Tensor> kept;   ///< all that was allocated meanwhile stays, as in a graph's pool
};
extern thread_local Recording* recording;

}  // namespace pm::pretend
