// SPDX-License-Identifier: Apache-2.0
// Runs GoogleTest, or a launcher or rank that a test started as a process.
#include <gtest/gtest.h>

#include "tests/unit/worker/launch/scenarios.h"

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "--launch") return pm::launch::test::run_launcher({argv + 2, argv + argc});
  if (role == "--rank") return pm::launch::test::run_rank({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
