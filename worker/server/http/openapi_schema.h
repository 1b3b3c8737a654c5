// SPDX-License-Identifier: Apache-2.0
// Builds JSON Schemas (2020-12, as in OpenAPI 3.1) of request bodies and replies, with functions named as those of the
// parsers.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pm::server::schema {

using nlohmann::json;

/// A field of an object. Optional fields may also be null, which the parsers treat as absent.
struct Property {
  std::string name;
  json schema;
  bool required = false;
};
using Properties = std::vector<Property>;

/// An integer as Fields::integer reads it; max_value == INT64_MAX means no upper limit.
json integer(int64_t min_value, int64_t max_value, const std::string& description = "");
/// A number in a range; with `above`, min_value itself is not allowed.
json number(double min_value, double max_value, const std::string& description = "", bool above = false);
/// Any number, for replies.
json real(const std::string& description = "");
json boolean(const std::string& description = "");
/// A string of at least `min_length` characters.
json text(const std::string& description = "", size_t min_length = 0);
json one_of(const std::vector<std::string>& words, const std::string& description = "");
/// Exactly this value.
json constant(const json& value);
/// An array; max_items == 0 means no limit.
json list(json items, size_t min_items = 0, size_t max_items = 0, const std::string& description = "");
/// A value that matches any of several schemas.
json any(std::vector<json> schemas, const std::string& description = "");
/// The schema with null allowed as well.
json or_null(json schema);
/// An object with these fields only.
json object(const Properties& properties, const std::string& description = "");
/// An object whose fields are not listed, for replies.
json open_object(const std::string& description = "");
/// Adds fields to those of an object.
void append(Properties& to, const Properties& more);
/// Returns the schema with this description.
json described(json schema, const std::string& description);

}  // namespace pm::server::schema
