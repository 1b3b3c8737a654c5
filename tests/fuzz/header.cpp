// SPDX-License-Identifier: Apache-2.0
// A whole safetensors file: the length, the header, the table.
#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file = pm::fuzz::text(data, size);
  try {
    pm::fuzz::hold_table(pm::checkpoint::read_safetensors(pm::checkpoint::in_memory(file)), file);
  } catch (const pm::Error&) {
  }
  return 0;
}
