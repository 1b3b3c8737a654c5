// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/mask_thread.h"

namespace pm::engine {

MaskThread::~MaskThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MaskThread::compute(std::span<SamplingInput> inputs) {
  std::lock_guard lock(mutex_);
  for (SamplingInput& input : inputs) {
    if (!input.constraint) continue;
    std::packaged_task<TokenMask()> task([constraint = input.constraint] { return constraint->next(); });
    input.mask = task.get_future().share();
    tasks_.push_back(std::move(task));
  }
  if (tasks_.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  wake_.notify_one();
}

void MaskThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::packaged_task<TokenMask()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace pm::engine
