// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/index_table.h"

namespace pm::policy {

std::string IndexTable::key() const {
  if (input.empty()) return "row." + std::to_string(default_row);
  if (column < 0) return input;
  return input + "." + std::to_string(column) + (minus_column < 0 ? "" : "-" + std::to_string(minus_column));
}

}  // namespace pm::policy
