// SPDX-License-Identifier: Apache-2.0
// Ranges of allowed values, with the words that error messages and pages use for them.
#pragma once
#include <cstdint>
#include <string>

namespace pm::base {

struct IntegerRange {
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;  ///< INT64_MAX: no upper limit
  bool contains(int64_t value) const { return value >= min && value <= max; }
  /// Returns "an integer from 0 to 20" or "an integer from 1 up".
  std::string text() const;
  bool operator==(const IntegerRange&) const = default;
};

struct NumberRange {
  double min = 0, max = 0;
  bool above_min = false;  ///< min itself is not allowed
  /// Returns false for NaN too.
  bool contains(double value) const { return (above_min ? value > min : value >= min) && value <= max; }
  /// Returns "a number from 0 to 2" or "a number above 0 to 1".
  std::string text() const;
  bool operator==(const NumberRange&) const = default;
};

/// Returns a number in the shortest usual form: "0.5", "1", "86400".
std::string number_text(double value);

}  // namespace pm::base
