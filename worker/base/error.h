// The errors of the worker. Each says what was found, what was expected and what to do; `kind` becomes an exit code or an HTTP status.
#pragma once
#include <stdexcept>
#include <string>

namespace pm {

enum class ErrorKind {
  Usage,         ///< wrong flags: exit 2
  Model,         ///< checkpoint, config or policy refused: exit 3
  DoesNotFit,    ///< exit 4
  RankLost,      ///< a rank died, froze or the communicator was aborted: exit 5
  Interrupted,   ///< exit 6
  Request,       ///< a bad request: HTTP 400
};

/// `reason` is a CamelCase word of OPERATOR.md's condition table (ModelUnreadable, UnknownArchitecture, UnsupportedPolicy, DoesNotFit, RankLost, ...).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string reason, const std::string& message)
      : std::runtime_error(message), kind(kind), reason(std::move(reason)) {}
  ErrorKind kind;
  std::string reason;
};

/// Exit code of DESIGN 4.7.
int exit_code(ErrorKind);

}  // namespace pm
