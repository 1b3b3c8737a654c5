// SPDX-License-Identifier: Apache-2.0
// Test tool of the parity tests: checkpoint_dump FOLDER OUT prints one JSON object per tensor and writes the row-major
// bytes of all tensors to OUT in turn; or it prints the refusal.
#include <fstream>
#include <iostream>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto checkpoint = pm::checkpoint::Checkpoint::open(argv[1]);
    std::ofstream out(argv[2], std::ios::binary);
    for (const auto& [name, info] : checkpoint.tensors()) {
      std::string bytes(static_cast<size_t>(info.bytes), '\0');
      const pm::checkpoint::Strip whole{0, 1, info.bytes, info.bytes};
      checkpoint.read(info, {&whole, 1}, std::as_writable_bytes(std::span(bytes)));
      out << bytes;
      std::cout << nlohmann::json{{"name", name},       {"dtype", name_of(info.dtype)}, {"shape", info.shape},
                                  {"file", info.file},  {"offset", info.offset},        {"strides", info.strides},
                                  {"bytes", info.bytes}}
                << "\n";
    }
    for (const auto& [name, tensor] : checkpoint.unsupported())
      std::cout << nlohmann::json{{"name", name}, {"unsupported", tensor.type}} << "\n";
  } catch (const pm::Error& error) {
    std::cout << nlohmann::json{{"refused", error.what()}} << "\n";
  }
}
