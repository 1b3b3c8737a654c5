// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/executor.h"

#include <exception>

namespace pm::parallel {

StepScope::StepScope(Executor& executor, const StepRequirements& requirements)
    : executor_(executor), exceptions_(std::uncaught_exceptions()) {
  try {
    executor_.begin_step(requirements);
  } catch (...) {
    executor_.abandon_step();
    throw;
  }
}

StepScope::~StepScope() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_) {
    executor_.finish_step();
  } else {
    executor_.abandon_step();
  }
}

}  // namespace pm::parallel
