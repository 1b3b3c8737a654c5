// SPDX-License-Identifier: Apache-2.0
// The JSON type of all Kubernetes objects. Objects are not typed: the API server validates them against the schema.
#pragma once
#include <nlohmann/json.hpp>

namespace pm::k8s {
using Json = nlohmann::json;
}
