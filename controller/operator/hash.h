// Short stable names for values.
#pragma once
#include <string>

#include "controller/core/json.h"

namespace pm::op {

/// Ten lower-case letters and digits (50 bits of SHA-256 over the JSON with sorted keys), good in an object's name and as a label value.
/// The same for every build and run.
std::string hash_of(const k8s::Json&);

}  // namespace pm::op
