// SPDX-License-Identifier: Apache-2.0
// Computes the token masks of constrained sequences on a thread of its own, while the ranks run the step whose logits
// they apply to.
#pragma once
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <span>
#include <thread>

#include "worker/engine/protocol/step_output.h"

namespace pm::engine {

class MaskThread {
 public:
  MaskThread() = default;
  MaskThread(const MaskThread&) = delete;
  MaskThread& operator=(const MaskThread&) = delete;
  /// Ends the thread; masks that wait are not computed.
  ~MaskThread();
  /// Begins with the masks of the inputs that have a constraint. The thread starts with the first of them.
  void compute(std::span<SamplingInput>);

 private:
  void run();
  std::mutex mutex_;  ///< guards all below
  std::condition_variable wake_;
  std::deque<std::packaged_task<TokenMask()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pm::engine
