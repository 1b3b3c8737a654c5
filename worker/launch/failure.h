// SPDX-License-Identifier: Apache-2.0
// Collects the failures that ranks and the launcher saw, chooses the cause, and reports it to Kubernetes.
#pragma once
#include <string>
#include <vector>

#include "contract/reasons.h"

namespace pm::launch {

struct Failure {
  int rank = 0;
  Reason reason = Reason::RankLost;
  std::string message;
  int exit_code = 5;
};

/// Returns the first failure that is not the echo of another (CommunicatorAborted), or the first of all when there is
/// none. `failures` must not be empty.
const Failure& cause_of(const std::vector<Failure>& failures);

/// Returns {"rank", "reason", "exitCode", "message"} in at most 1,024 bytes; the message is truncated to fit.
std::string termination_message(const Failure& failure);

/// Writes the message if `path` names an existing file that may be written; returns true when it did. Creates no file.
bool write_termination_message(const std::string& path, const Failure& failure);

}  // namespace pm::launch
