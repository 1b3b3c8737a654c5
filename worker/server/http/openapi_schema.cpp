// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/openapi_schema.h"

namespace pm::server::schema {

void append(Properties& to, const Properties& more) { to.insert(to.end(), more.begin(), more.end()); }

json described(json schema, const std::string& description) {
  if (!description.empty()) schema["description"] = description;
  return schema;
}

json integer(int64_t min_value, int64_t max_value, const std::string& description) {
  json made = {{"type", "integer"}, {"minimum", min_value}};
  if (max_value != INT64_MAX) made["maximum"] = max_value;
  return described(std::move(made), description);
}

json number(double min_value, double max_value, const std::string& description, bool above) {
  return described({{"type", "number"}, {above ? "exclusiveMinimum" : "minimum", min_value}, {"maximum", max_value}},
                   description);
}

json real(const std::string& description) { return described({{"type", "number"}}, description); }
json boolean(const std::string& description) { return described({{"type", "boolean"}}, description); }

json text(const std::string& description, size_t min_length) {
  json made = {{"type", "string"}};
  if (min_length > 0) made["minLength"] = min_length;
  return described(std::move(made), description);
}

json one_of(const std::vector<std::string>& words, const std::string& description) {
  return described({{"type", "string"}, {"enum", words}}, description);
}

json constant(const json& value) { return {{"const", value}}; }

json list(json items, size_t min_items, size_t max_items, const std::string& description) {
  if (const auto type = items.find("type");
      type != items.end() && type->is_array()) {  // some schema readers support only one type per item
    *type = (*type)[0];
    items = any({items, {{"type", "null"}}});
  }
  json made = {{"type", "array"}, {"items", std::move(items)}};
  if (min_items > 0) made["minItems"] = min_items;
  if (max_items > 0) made["maxItems"] = max_items;
  return described(std::move(made), description);
}

json any(std::vector<json> schemas, const std::string& description) {
  return described({{"anyOf", std::move(schemas)}}, description);
}

json or_null(json schema) {
  if (schema.value("type", json()) == "null") return schema;
  if (const auto type = schema.find("type"); type != schema.end() && type->is_string()) {
    *type = json::array({*type, "null"});
    if (schema.contains("enum")) schema["enum"].push_back(nullptr);
    return schema;
  }
  const json null = {{"type", "null"}};
  if (schema.contains("anyOf")) {
    schema["anyOf"].push_back(null);
    return schema;
  }
  const std::string description = schema.value("description", "");
  schema.erase("description");
  return any({std::move(schema), null}, description);
}

json object(const Properties& properties, const std::string& description) {
  json made = {{"type", "object"}, {"properties", json::object()}, {"additionalProperties", false}};
  for (const Property& property : properties) {
    made["properties"][property.name] = property.required ? property.schema : or_null(property.schema);
    if (property.required) made["required"].push_back(property.name);
  }
  return described(std::move(made), description);
}

json open_object(const std::string& description) { return described({{"type", "object"}}, description); }

}  // namespace pm::server::schema
