// SPDX-License-Identifier: Apache-2.0
// Says whether the worker is tested on this machine (docs/reference/machines.md).
#pragma once
#include <string>
#include <string_view>

namespace pm::ops {

/// Returns one sentence about a machine on which the worker runs slowly or untested; empty on x86-64-v3 and better.
/// `architecture` is utsname's machine, `kernels` the name of the widest kernels that the CPU supports.
std::string machine_warning(std::string_view architecture, std::string_view kernels);

/// The same of this machine.
std::string machine_warning();

/// Returns the name of the fastest kernels that this CPU supports: amx, avx512_bf16, avx512, avx2, or any.
std::string cpu_kernels();

}  // namespace pm::ops
