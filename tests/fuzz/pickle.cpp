// SPDX-License-Identifier: Apache-2.0
// The pickle of a .bin file in a sound archive with four storages, so that every change reaches the pickle reader.
#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/checkpoint/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string pickled = pm::fuzz::text(data, size);
  const std::string file =
      pm::checkpoint::torch_archive(pickled,
                                    {{"0", std::string(48, 'a')}, {"1", std::string(24, 'b')}, {"2", "cc"}, {"3", ""}})
          .bytes();
  try {
    pm::fuzz::hold_table(pm::checkpoint::read_torch_file(pm::checkpoint::in_memory(file)), file);
  } catch (const pm::Error&) {
  }
  return 0;
}
