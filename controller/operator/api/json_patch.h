// SPDX-License-Identifier: Apache-2.0
// Declares the differences between objects, so that only changed fields are written.
#pragma once
#include <optional>

#include "controller/core/json.h"

namespace pm::op {

/// Returns the merge patch (RFC 7396) that turns `from` into `to`: {} when they are equal. Arrays are replaced whole.
k8s::Json merge_patch(const k8s::Json& from, const k8s::Json& to);

/// Returns the merge patch that gives numbers, texts and truth values of `live` those of `wanted`; nullopt when more
/// than values has to change: a field is missing, or a list differs. Fields that only `live` has stay.
std::optional<k8s::Json> changed_values(const k8s::Json& live, const k8s::Json& wanted);

/// Returns true when `live` contains everything in `wanted`. Objects may have further keys (defaults of the server),
/// and lists of objects further elements in any order (a port that somebody added); other lists must be equal.
bool covers(const k8s::Json& live, const k8s::Json& wanted);

}  // namespace pm::op
