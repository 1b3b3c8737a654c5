// SPDX-License-Identifier: Apache-2.0
// Reads what the other wire forms have in common with each other.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/engine/sampling/parameters.h"
#include "worker/server/http/json_body.h"

namespace pm::server {

/// A value of a request, the same value with its keys in order, and its name in messages.
struct RequestValue {
  const nlohmann::json& value;
  const nlohmann::ordered_json& ordered;
  std::string field;

  RequestValue at(size_t i) const { return {value[i], ordered[i], field + "[" + std::to_string(i) + "]"}; }
  RequestValue at(const std::string& name) const {
    return {value.at(name), ordered.at(name), (field.empty() ? "" : field + ".") + name};
  }
};

/// Throws ApiError 400 where the field is absent or no string.
std::string required_text(Fields&, const std::string& name);

/// Throws ApiError 400 for an array that is none, or has more than `most` elements.
void check_array(const nlohmann::json& value, const std::string& field, size_t least, size_t most,
                 const std::string& of);

/// Passes on the sampling parameters that have one name on all routes, and "model", for parse_chat() to read.
void copy_sampling(Fields&, nlohmann::ordered_json& chat);
/// Returns the name that copy_sampling() has passed on as "model"; empty: none.
std::string requested_model(const nlohmann::ordered_json& chat);
/// Returns whether copy_sampling() passes the parameter on.
bool is_copied(const engine::Parameter&);

}  // namespace pm::server
