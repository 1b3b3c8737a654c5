// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/signal_queue.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/signals.h"

namespace pm::launch {

SignalQueue::SignalQueue(std::initializer_list<int> signals) {
  const sigset_t set = base::signal_set(signals);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

SignalQueue::~SignalQueue() {
  while (next()) {
  }  // pending signals would be delivered as soon as they are unblocked
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info{};
  if (read(descriptor_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace pm::launch
