// SPDX-License-Identifier: Apache-2.0
// A further embedding table of an input.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// A further embedding table of the input. The request gives the indices under the name `input`: [rows, length], or
/// several per token [rows, length, columns], of which `column` is used, less `minus_column` (LayoutLM's width is
/// right less left).
struct IndexTable {
  Param table;
  std::string input;                       ///< empty: all tokens have `default_row`
  int64_t column = -1, minus_column = -1;  ///< -1: none
  bool skip_if_absent =
      false;  ///< nothing is added for a request without `input` (XLM's langs); else such a request reads `default_row`
  int64_t default_row = 0;
  std::optional<int64_t> generation_row;  ///< the row of every token in a step of generation; absent: as for a request
                                          ///< without `input`
  /// Returns the row for tokens of a request without `input`; -1: nothing is added.
  int64_t row_if_absent() const { return skip_if_absent ? -1 : default_row; }
  /// The key of the indices: "token_type_ids", "bbox.0", "bbox.2-0".
  std::string key() const;
};

}  // namespace pm::policy
