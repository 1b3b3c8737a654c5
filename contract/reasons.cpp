// SPDX-License-Identifier: Apache-2.0
#include "contract/reasons.h"

#include <algorithm>

namespace pm {

std::optional<Reason> parse_reason(std::string_view name) {
  const auto found = std::find_if(reason_table.begin(), reason_table.end(),
                                  [name](const ReasonInfo& info) { return info.name == name; });
  return found == reason_table.end() ? std::nullopt : std::optional(found->reason);
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::None:
    case ErrorKind::Internal:
      return 1;
    case ErrorKind::Usage:
    case ErrorKind::Request:
      return 2;
    case ErrorKind::Model:
      return 3;
    case ErrorKind::DoesNotFit:
      return 4;
    case ErrorKind::RankLost:
      return 5;
    case ErrorKind::Interrupted:
      return 6;
  }
  return 1;
}

}  // namespace pm
