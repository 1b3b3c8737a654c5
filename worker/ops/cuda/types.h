// What the launch functions of this folder take: plain pointers into a device's memory. No torch and no CUDA header, so that any file may include them.
#pragma once
#include <cstdint>

namespace pm::ops::cuda {

/// What an element's bits mean. I8 is for weights only.
enum class Element : uint8_t { F32, F16, BF16, I8 };

constexpr int64_t element_bytes(Element type) { return type == Element::F32 ? 4 : type == Element::I8 ? 1 : 2; }

/// A cudaStream_t; nullptr: the default stream. Launches are queued on it and return at once.
using Stream = void*;

/// Tokens of one KV block.
inline constexpr int block_tokens = 16;

}  // namespace pm::ops::cuda
