// Short stable names for values.
#pragma once
#include <string>
#include <string_view>

#include "controller/core/json.h"

namespace pm::op {

/// Ten lower-case letters and digits (50 bits of SHA-256 over the JSON with sorted keys), good in an object's name and as a label value.
/// The same for every build and run.
std::string hash_of(const k8s::Json&);
/// The whole SHA-256, 32 bytes: texts with the same are the same.
std::string digest_of(std::string_view text);

}  // namespace pm::op
