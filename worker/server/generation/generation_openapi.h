// SPDX-License-Identifier: Apache-2.0
// Declares the common parts of the descriptions of all routes that generate, for GET /openapi.json.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/serving/server_context.h"

namespace pm::server {

inline const nlohmann::json count_schema = schema::integer(0, INT64_MAX), text_schema = schema::text(),
                            null_schema = {{"type", "null"}}, any_schema = nlohmann::json::object();

/// Returns the schema of an object whose unknown fields are ignored, unless requests are strict.
nlohmann::json lenient(const ServerContext&, nlohmann::json object);

/// Returns the operation of a route that answers whole or as server-sent events.
Operation generating(std::string summary, const schema::Properties& body, nlohmann::json reply, nlohmann::json example);

/// The fields that copy_sampling() passes on to a chat completion.
schema::Properties copied_properties(const ServerContext&);

}  // namespace pm::server
