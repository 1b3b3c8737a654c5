// SPDX-License-Identifier: Apache-2.0
// Maps a named file in /dev/shm. Creation reserves every page, so that a full /dev/shm is an error here and not a bus
// error later.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pm::comm {

class ShmFile {
 public:
  /// Removes a stale file of that name, then creates it with `bytes` zero bytes. Throws Error{DoesNotFit} when /dev/shm
  /// has too little space.
  static ShmFile create(const std::string& name, size_t bytes);
  /// Maps the whole file. Throws Error{RankLost} when there is none.
  static ShmFile open(const std::string& name);
  /// Returns true when a file was removed.
  static bool remove(const std::string& name);
  static std::string path(const std::string& name);

  ShmFile(ShmFile&& other) noexcept;
  ShmFile& operator=(ShmFile&&) = delete;
  ~ShmFile();
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory_), size_}; }

 private:
  ShmFile(int descriptor, size_t size, const std::string& path);
  void* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pm::comm
