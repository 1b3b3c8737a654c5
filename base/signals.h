// SPDX-License-Identifier: Apache-2.0
// Blocks signals, so that they are read by sigtimedwait or signalfd and no code runs in a handler.
#pragma once
#include <csignal>
#include <initializer_list>

namespace pm::base {

sigset_t signal_set(std::initializer_list<int> signals);
/// Blocks the signals in this thread and in every thread that it starts later, and returns their set. Linux delivers
/// a blocked signal also to PID 1, which receives no signal without a handler otherwise.
sigset_t block_signals(std::initializer_list<int> signals);

}  // namespace pm::base
