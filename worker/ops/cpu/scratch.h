// SPDX-License-Identifier: Apache-2.0
// Memory that a thread keeps from one call to the next, so that no call takes new pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace pm::ops {

class Scratch {
 public:
  /// Returns `bytes` bytes at the beginning of a cache line, of any content.
  void* get(int64_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      memory_.reset(static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), line)));
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t line{64};
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, line); }
  };
  std::unique_ptr<std::byte, Delete> memory_;
  int64_t size_ = 0;
};

}  // namespace pm::ops
