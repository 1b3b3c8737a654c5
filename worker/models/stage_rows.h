// SPDX-License-Identifier: Apache-2.0
// What pipeline stages pass on of a step beside the states: inputs of later layers, and keys and values that they read.
#pragma once
#include "worker/models/model.h"

namespace pm::models {

/// Puts what earlier stages handed on into a batch for one pass through the layers of `here`, and hands on what later
/// stages read when it ends. The batch must outlive it.
class StageRows {
 public:
  StageRows(const policy::Stack&, const Stack& here, StageState& handed, layers::Batch&);
  StageRows(const StageRows&) = delete;
  StageRows& operator=(const StageRows&) = delete;
  /// Stores what later stages read under keys of the stack.
  void hand_on();

 private:
  const policy::Stack& stack_;
  const Stack& here_;
  StageState& handed_;
  layers::Batch& batch_;
  layers::SharedKeys shared_;
};

}  // namespace pm::models
