// SPDX-License-Identifier: Apache-2.0
// What the targets share: the fuzzer's bytes as text, and what must hold for any table that a reader accepts.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/strided.h"

namespace pm::fuzz {

inline std::string text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// Ends the process: the fuzzer keeps the input.
inline void hold(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << "broken: " << what << "\n";
  std::abort();
}

/// Every tensor lies inside of the file, has the bytes that type and shape say, and can be read without leaving the
/// file.
inline void hold_table(const checkpoint::Header& header, const std::string& file) {
  for (const auto& [name, info] : header.tensors) {
    hold(info.name == name, "a tensor has another name");
    hold(info.offset >= 0 && info.bytes >= 0 && info.offset <= static_cast<int64_t>(file.size()) &&
             info.bytes <= static_cast<int64_t>(file.size()) - info.offset,
         "\"" + name + "\" lies outside of the file");
    int64_t bytes = size_of(info.dtype);
    for (int64_t size : info.shape) bytes = size == 0 || bytes == 0 ? 0 : bytes * size;
    hold(bytes == info.bytes, "\"" + name + "\" has other bytes than its shape says");
    if (info.strides.empty() || info.bytes > 4096) continue;
    std::string out(static_cast<size_t>(info.bytes), '\0');
    const checkpoint::Strip whole{0, 1, info.bytes, info.bytes};
    checkpoint::read_strided(
        info, {&whole, 1}, std::as_writable_bytes(std::span(out)),
        [&, &name = name](int64_t offset, std::span<std::byte> part) {
          hold(offset >= 0 && offset + static_cast<int64_t>(part.size()) <= static_cast<int64_t>(file.size()),
               "\"" + name + "\" is read outside of the file");
          std::copy_n(reinterpret_cast<const std::byte*>(file.data()) + offset, part.size(), part.begin());
        });
  }
}

}  // namespace pm::fuzz
