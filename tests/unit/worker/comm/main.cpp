// SPDX-License-Identifier: Apache-2.0
// Runs GoogleTest, or a rank that a test started as a process.
#include <gtest/gtest.h>

#include "tests/unit/worker/comm/children.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--child") return pm::comm::test::run_child({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
