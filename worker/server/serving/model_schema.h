// SPDX-License-Identifier: Apache-2.0
// The schema of the field "model" of requests.
#pragma once
#include <nlohmann/json.hpp>

#include "worker/server/http/openapi_schema.h"
#include "worker/server/serving/served_names.h"

namespace pm::server {

/// Returns the names that are served, or any text where adapters come and go.
inline nlohmann::json model_schema(const ServedNames& names) {
  return schema::described(names.change() ? schema::text() : schema::one_of(names.with_adapters()),
                           "Name of the served model");
}

}  // namespace pm::server
