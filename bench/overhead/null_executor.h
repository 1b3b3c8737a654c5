// A model that computes nothing: every step is over at once, every token is the next number.
#pragma once
#include <memory>

#include "worker/parallel/executor.h"

namespace pm::bench {

/// Ids go round from 1 to vocabulary - 1.
std::unique_ptr<parallel::Executor> null_executor(int64_t vocabulary);

}  // namespace pm::bench
