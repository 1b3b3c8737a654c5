// SPDX-License-Identifier: Apache-2.0
// The exception type of the worker. A message says what was found, what was expected and what to do; the kind of its
// reason becomes an exit code or an HTTP status.
#pragma once
#include <stdexcept>
#include <string>

#include "contract/reasons.h"

namespace pm {

class Error : public std::runtime_error {
 public:
  Error(Reason reason, const std::string& message)
      : std::runtime_error(message), kind(info_of(reason).kind), reason(reason) {}
  ErrorKind kind;
  Reason reason;
};

}  // namespace pm
