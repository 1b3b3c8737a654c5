// SPDX-License-Identifier: Apache-2.0
// Types of the kernel launch functions of this folder: plain pointers into device memory. No torch and no CUDA header
// is included, so that any file may include this one.
#pragma once
#include <cstdint>

#include "contract/kv_block.h"

namespace pm::ops::cuda {

/// Element types. I8 is for weights only.
enum class Element : uint8_t { F32, F16, BF16, I8 };

constexpr int64_t element_bytes(Element type) { return type == Element::F32 ? 4 : type == Element::I8 ? 1 : 2; }

/// A cudaStream_t; nullptr: the default stream. Launches are queued on it and return immediately.
using Stream = void*;

}  // namespace pm::ops::cuda
