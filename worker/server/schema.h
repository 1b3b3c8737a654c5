// JSON Schema (2020-12, as OpenAPI 3.1 uses it) of request bodies and replies, in the words of the parsers that it stands beside.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pm::server::schema {

using nlohmann::json;

/// A field of an object. Optional ones may also be null, which the parsers take for absent.
struct Property {
  std::string name;
  json schema;
  bool required = false;
};
using Properties = std::vector<Property>;

/// As Fields::integer: most == INT64_MAX says no upper limit.
json integer(int64_t least, int64_t most, const std::string& description = "");
/// As Fields::number; `above`: the least value itself is not allowed.
json number(double least, double most, const std::string& description = "", bool above = false);
/// Any number, of a reply.
json real(const std::string& description = "");
json boolean(const std::string& description = "");
/// `least`: characters that it needs.
json text(const std::string& description = "", size_t least = 0);
json one_of(const std::vector<std::string>& words, const std::string& description = "");
/// Exactly this value.
json constant(const json& value);
/// `most` 0: no limit.
json list(json items, size_t least = 0, size_t most = 0, const std::string& description = "");
/// Any of several schemas.
json any(std::vector<json> schemas, const std::string& description = "");
/// With null as well.
json or_null(json schema);
/// An object with these fields only.
json object(const Properties& properties, const std::string& description = "");
/// An object of a reply whose fields are not listed.
json open_object(const std::string& description = "");
/// The same schema with a description of its own.
json described(json schema, const std::string& description);

}  // namespace pm::server::schema
