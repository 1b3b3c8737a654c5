// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/cpu/machine.h"

#include <sys/utsname.h>

#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {

std::string machine_warning(std::string_view architecture, std::string_view kernels) {
  if (architecture != "x86_64")
    return "This machine is " + std::string(architecture) +
           ", and ParallelModel is tested on x86-64 only: generic kernels run, slowly.";
  if (kernels == "any")
    return "This CPU lacks AVX2, FMA or F16C (x86-64-v3): generic kernels run, several times slower.";
  return "";
}

std::string machine_warning() {
  utsname system{};
  return machine_warning(uname(&system) == 0 ? system.machine : "of an unknown kind", kernels().name);
}

std::string cpu_kernels() { return kernels().name; }

}  // namespace pm::ops
