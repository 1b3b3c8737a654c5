// SPDX-License-Identifier: Apache-2.0
// A temporary checkpoint folder that a test writes.
#pragma once
#include <unistd.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace pm::checkpoint {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "checkpoint-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  /// Writes a safetensors file: length, header, data.
  void write_tensors(const std::string& name, const std::string& header, const std::string& data) const {
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    write(name, length + header + data);
  }
  std::filesystem::path path;
};

}  // namespace pm::checkpoint
