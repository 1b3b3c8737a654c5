// SPDX-License-Identifier: Apache-2.0
// Declares how CEL expressions that select devices are read. They are not evaluated: the terms that are known limit the
// devices that count, and any other term excludes none (docs/design/decisions/021).
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "controller/core/json.h"

namespace pm::op {

enum class Comparison { Equal, AtLeast, AtMost, Above, Below };

/// One comparison of a property of a device.
struct DeviceTerm {
  enum class Property { Driver, Attribute, Capacity };
  Property property = Property::Driver;
  std::string domain, name;  ///< of an attribute or a capacity
  Comparison comparison = Comparison::Equal;
  std::variant<std::string, int64_t, bool> value;  ///< of a capacity: its quantity as an integer
  bool operator==(const DeviceTerm&) const = default;
};

/// Returns the terms of a conjunction that are known:
/// - device.driver == "X"
/// - device.attributes["DOMAIN"].NAME == VALUE, where VALUE is a string, an integer or a boolean
/// - device.capacity["DOMAIN"].NAME.compareTo(quantity("Q")) >= 0, or one of == <= > <
/// Strings may have either kind of quotes. An expression that is no conjunction has no known terms, nor has one whose
/// strings cannot be separated from the rest by their quotes alone.
std::vector<DeviceTerm> read_terms(const std::string& expression);

/// Returns true when a device of a ResourceSlice fulfils the term. A device without the property does not. Names
/// without a domain belong to that of the driver.
bool fulfils(const DeviceTerm&, const std::string& driver, const k8s::Json& device);

}  // namespace pm::op
