// SPDX-License-Identifier: Apache-2.0
// Declares the hash in names and labels of objects, which is the same in every build and run.
#pragma once
#include <string>

#include "controller/core/json.h"

namespace pm::op {

/// Returns ten lower-case letters and digits: 50 bits of the SHA-256 of the JSON with sorted keys. They are valid in an
/// object name and as a label value.
std::string short_hash(const k8s::Json&);

}  // namespace pm::op
