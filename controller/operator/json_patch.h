// Differences between objects, for writing only what differs.
#pragma once
#include "controller/core/json.h"

namespace pm::op {

/// The merge patch (RFC 7396) that turns `from` into `to`: {} when they are equal. Arrays are replaced whole.
k8s::Json merge_patch(const k8s::Json& from, const k8s::Json& to);

/// True when `live` holds everything that `wanted` holds: objects may have further keys (a server's defaults), lists of objects further elements
/// (a port that somebody added), in any order; other lists must be equal.
bool covers(const k8s::Json& live, const k8s::Json& wanted);

}  // namespace pm::op
