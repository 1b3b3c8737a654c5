// SPDX-License-Identifier: Apache-2.0
// Replies whose body is JSON.
#pragma once
#include <nlohmann/json.hpp>

#include "worker/server/http/http.h"

namespace pm::server {

/// Bytes that are not valid UTF-8 are replaced.
http::Response json_response(const nlohmann::json& body, int status = 200);

}  // namespace pm::server
