// SPDX-License-Identifier: Apache-2.0
// Declares how pods get the LoRA adapters of a spec.
#pragma once
#include <vector>

#include "contract/worker_arguments.h"
#include "controller/operator/api/spec.h"

namespace pm::op {

/// Mounts the volumes of the adapters that the pod does not have yet, and returns the folder of each adapter. They are
/// mounted whole and read-only, as the model's is. Call it after the model is mounted.
std::vector<NamedAdapter> mount_adapters(Json& pod, const Spec&);

}  // namespace pm::op
