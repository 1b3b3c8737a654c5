// Why a group failed: collecting what ranks and the launcher saw, choosing the cause, and telling Kubernetes.
#pragma once
#include <string>
#include <vector>

namespace pm::launch {

struct Failure {
  int rank = 0;
  std::string reason;    ///< a word of OPERATOR.md's condition table
  std::string message;
  int exit_code = 5;
};

/// The first failure that is not merely the echo of another (CommunicatorAborted); the first of all when there is none. `failures` must not be empty.
const Failure& cause_of(const std::vector<Failure>& failures);

/// {"rank", "reason", "exitCode", "message"} in at most 1,024 bytes; the message is cut to fit.
std::string termination_message(const Failure& failure);

/// Writes the message if `path` names an existing file that may be written; true when it did. Creates nothing.
bool write_termination_message(const std::string& path, const Failure& failure);

}  // namespace pm::launch
