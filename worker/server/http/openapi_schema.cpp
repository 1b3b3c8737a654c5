// See schema.h.
#include "worker/server/schema.h"

namespace pm::server::schema {

json described(json schema, const std::string& description) {
  if (!description.empty()) schema["description"] = description;
  return schema;
}

json integer(int64_t least, int64_t most, const std::string& description) {
  json made = {{"type", "integer"}, {"minimum", least}};
  if (most != INT64_MAX) made["maximum"] = most;
  return described(std::move(made), description);
}

json number(double least, double most, const std::string& description, bool above) {
  return described({{"type", "number"}, {above ? "exclusiveMinimum" : "minimum", least}, {"maximum", most}}, description);
}

json real(const std::string& description) { return described({{"type", "number"}}, description); }
json boolean(const std::string& description) { return described({{"type", "boolean"}}, description); }

json text(const std::string& description, size_t least) {
  json made = {{"type", "string"}};
  if (least > 0) made["minLength"] = least;
  return described(std::move(made), description);
}

json one_of(const std::vector<std::string>& words, const std::string& description) {
  return described({{"type", "string"}, {"enum", words}}, description);
}

json constant(const json& value) { return {{"const", value}}; }

json list(json items, size_t least, size_t most, const std::string& description) {
  if (const auto type = items.find("type"); type != items.end() && type->is_array()) {   // some readers of schemas take one type per item only
    *type = (*type)[0];
    items = any({items, {{"type", "null"}}});
  }
  json made = {{"type", "array"}, {"items", std::move(items)}};
  if (least > 0) made["minItems"] = least;
  if (most > 0) made["maxItems"] = most;
  return described(std::move(made), description);
}

json any(std::vector<json> schemas, const std::string& description) { return described({{"anyOf", std::move(schemas)}}, description); }

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
