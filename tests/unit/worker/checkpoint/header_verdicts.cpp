// SPDX-License-Identifier: Apache-2.0
// Test tool header_verdicts FILE...: prints for each safetensors file whether its header is accepted, for the
// comparison with the reference implementation.
#include <fstream>
#include <iostream>
#include <sstream>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    const std::string all = bytes.str();
    uint64_t length = 0;
    for (int byte = 7; byte >= 0 && all.size() >= 8; --byte)
      length = length << 8 | static_cast<unsigned char>(all[static_cast<size_t>(byte)]);
    try {
      if (all.size() < 8 || length > all.size() - 8)
        throw pm::Error(pm::Reason::ModelUnreadable, "the header does not fit");
      pm::checkpoint::parse_header(std::string_view(all).substr(8, length), static_cast<int64_t>(all.size()), argv[i]);
      std::cout << "accepted\n";
    } catch (const pm::Error& error) {
      std::cout << "refused " << error.what() << "\n";
    }
  }
}
