// SPDX-License-Identifier: Apache-2.0
#include "base/range.h"

#include <sstream>

namespace pm::base {

std::string number_text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

std::string IntegerRange::text() const {
  return "an integer from " + std::to_string(min) + (max == INT64_MAX ? " up" : " to " + std::to_string(max));
}

std::string NumberRange::text() const {
  return std::string("a number ") + (above_min ? "above " : "from ") + number_text(min) + " to " + number_text(max);
}

}  // namespace pm::base
