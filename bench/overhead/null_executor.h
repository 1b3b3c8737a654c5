// SPDX-License-Identifier: Apache-2.0
// An executor that computes nothing: every step ends at once and every token is the next number.
#pragma once
#include <memory>

#include "worker/parallel/executor.h"

namespace pm::bench {

/// Makes an executor whose ids cycle from 1 to vocabulary - 1.
std::unique_ptr<parallel::Executor> null_executor(int64_t vocabulary);

}  // namespace pm::bench
