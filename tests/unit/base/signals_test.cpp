// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <gtest/gtest.h>

#include <thread>

namespace pm::base {
namespace {

TEST(Signals, BlockedOnesAreReadAndNotDelivered) {
  const sigset_t set = block_signals({SIGUSR1, SIGUSR2});
  EXPECT_TRUE(sigismember(&set, SIGUSR1) && sigismember(&set, SIGUSR2) && !sigismember(&set, SIGTERM));
  const timespec now{};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &now), -1) << "none is pending";
  std::thread later([] { raise(SIGUSR2); });  // it would end the process if the thread had not inherited the mask
  later.join();
  raise(SIGUSR1);
  EXPECT_EQ(sigtimedwait(&set, nullptr, &now), SIGUSR1);
}

}  // namespace
}  // namespace pm::base
