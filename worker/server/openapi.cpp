// SPDX-License-Identifier: Apache-2.0
#include "worker/server/openapi.h"

#include <set>

#include "base/markup.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using base::escape_markup;
using nlohmann::json;

const char* const json_content = "application/json";

const char* meaning_of(int status) {
  switch (status) {
    case 400:
      return "The request is invalid: `param` names the field, `message` says what was found and what is allowed";
    case 401:
      return "The API key is missing or unknown";
    case 404:
      return "The path or model does not exist, or the model's task does not support the path";
    case 413:
      return "Too many inputs, tokens, bytes or pixels";
    case 414:
      return "The request target is longer than 8192 bytes";
    case 415:
      return "The Content-Encoding of the body is not supported";
    case 429:
      return "The waiting queue is full; retry after the seconds in Retry-After";
    case 500:
      return "The server failed; its log has the cause with the request's id";
    case 503:
      return "The model is loading or shutting down, or a rank was lost; retry after the seconds in Retry-After";
  }
  return "The request is refused";
}

json headers(int status) {
  json all = {{"x-request-id", {{"$ref", "#/components/headers/RequestId"}}}};
  if (status == 429 || status == 503)
    all["Retry-After"] = {{"description", "Seconds"}, {"schema", {{"type", "integer"}, {"minimum", 1}}}};
  if (status == 401) all["WWW-Authenticate"] = {{"description", "Bearer"}, {"schema", {{"type", "string"}}}};
  if (status == 200)
    all["x-ignored-fields"] = {{"description", "Names of unknown fields of the request, which had no effect"},
                               {"schema", {{"type", "string"}}}};
  return all;
}

json content(const json& schema, const std::map<std::string, json>& others, const json& example = nullptr) {
  json all = json::object();
  if (!schema.is_null()) all[json_content] = {{"schema", schema}};
  if (!example.is_null()) all[json_content]["example"] = example;
  for (const auto& [type, other] : others) all[type] = {{"schema", other}};
  return all;
}

json parameter(const std::string& where, const schema::Property& property, bool required) {
  json schema = property.schema;
  json made = {{"name", property.name}, {"in", where}, {"required", required}};
  if (schema.contains("description")) {
    made["description"] = schema["description"];
    schema.erase("description");
  }
  made["schema"] = schema;
  return made;
}

json operation_json(const Router::Route& route, const ApiInfo& info) {
  const Operation& own = route.operation;
  json made = {{"summary", own.summary},
               {"operationId", operation_id(route.method, document_path(route))},
               {"responses", json::object()}};
  if (!own.path_parameter.empty())
    made["parameters"].push_back(parameter("path", {own.path_parameter, schema::text("Percent-encoded", 1)}, true));
  for (const auto& property : own.query) made["parameters"].push_back(parameter("query", property, property.required));
  if (!own.body.is_null() || !own.bodies.empty())
    made["requestBody"] = {{"required", true}, {"content", content(own.body, own.bodies, own.example)}};
  made["responses"]["200"] = {
      {"description", "Success"}, {"headers", headers(200)}, {"content", content(own.reply, own.replies)}};
  std::set<int> statuses(own.error_statuses.begin(), own.error_statuses.end());
  statuses.insert(500);
  if (made.contains("requestBody")) statuses.insert({400, 413, 415});
  if (!own.path_parameter.empty() || !own.query.empty()) statuses.insert(414);
  if (info.keys && !is_public_path(route.path)) statuses.insert(401);
  for (int status : statuses) {
    if (made["responses"].contains(std::to_string(status))) continue;
    made["responses"][std::to_string(status)] = {
        {"description", meaning_of(status)},
        {"headers", headers(status)},
        {"content", content({{"$ref", std::string("#/components/schemas/") + own.error_schema}}, {})}};
  }
  for (const auto& [status, reply] : own.other_replies)
    made["responses"][std::to_string(status)] = {
        {"description", meaning_of(status)}, {"headers", headers(status)}, {"content", content(reply, {})}};
  if (info.keys && is_public_path(route.path)) made["security"] = json::array();
  return made;
}

/// The schemas of errors that the operations refer to. Anthropic's form has fewer types.
json error_schemas(const Router& router, const Capabilities& can, const schema::Property& code) {
  const schema::Property message{"message", schema::text("Error message"), true},
      param{"param", schema::or_null(schema::text("Invalid field")), true},
      id{"request_id", schema::text("Also in the header x-request-id and in the server's log"), true};
  const json error =
      schema::object({message,
                      {"type",
                       schema::one_of({"invalid_request_error", "authentication_error", "not_found_error",
                                       "rate_limit_error", "service_unavailable_error", "server_error"}),
                       true},
                      param,
                      code,
                      id});
  json made = {{"Error", schema::object({{"error", error, true}})}};
  for (const auto& route : router.routes()) {
    const std::string name = route.operation.error_schema;
    if (made.contains(name) || !can.serves(route.path)) continue;
    const json type = schema::one_of({"invalid_request_error", "authentication_error", "not_found_error",
                                      "request_too_large", "rate_limit_error", "overloaded_error", "api_error"});
    const json details = schema::open_object("Of thread_unsupported_request");
    made[name] = schema::object(
        {{"type", schema::constant("error"), true},
         {"error", schema::object({message, {"type", type, true}, param, code, {"details", details}}), true},
         id});
  }
  return made;
}

json components(const Router& router, const Capabilities& can, const ApiInfo& info) {
  json codes = json::array();
  std::string meanings = "Stable error code:";
  for (const ErrorCode& code : error_codes()) {
    codes.push_back(code.code);
    meanings += std::string("\n- `") + code.code + "`: " + code.meaning;
  }
  const schema::Property code{"code", {{"type", "string"}, {"enum", codes}, {"description", meanings}}, true};
  json made = {
      {"schemas", error_schemas(router, can, code)},
      {"headers",
       {{"RequestId", {{"description", "The server's id of this request"}, {"schema", {{"type", "string"}}}}}}}};
  if (info.keys)
    made["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}},
                               {"header", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
  return made;
}

std::string dump(const json& value) { return value.dump(2, ' ', false, json::error_handler_t::replace); }

void append_contents(std::string& page, const std::string& title, const json& content) {
  for (const auto& [type, part] : content.items()) {
    page += "<details><summary>" + escape_markup(title) + " <code>" + escape_markup(type) + "</code></summary><pre>" +
            escape_markup(dump(part["schema"])) + "</pre></details>";
    if (part.contains("example"))
      page += "<p>Example:</p><pre>" +
              escape_markup(part["example"].dump(-1, ' ', false, json::error_handler_t::replace)) + "</pre>";
  }
}

}  // namespace

bool is_public_path(std::string_view path) { return path == "/health" || path == "/metrics"; }

std::string operation_id(const std::string& method, const std::string& path) {
  std::string id;
  for (char c : method) id += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (char c : path) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter)
      id += c;
    else if (id.back() != '_')
      id += '_';
  }
  if (id.back() == '_') id.pop_back();
  return id;
}

std::string document_path(const Router::Route& route) {
  const size_t star = route.path.find('*');
  std::string path = route.path;
  return star == path.npos ? path : path.replace(star, 1, "{" + route.operation.path_parameter + "}");
}

json openapi_document(const Router& router, const Capabilities& can, const ApiInfo& info) {
  json paths = json::object();
  for (const auto& route : router.routes()) {
    if (!can.serves(route.path)) continue;
    std::string method;
    for (char c : route.method) method += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    paths[document_path(route)][method] = operation_json(route, info);
  }
  const std::string limits =
      "Bodies are at most " + std::to_string(info.payload_limit) +
      " bytes of JSON nested at most 16 levels, 512 on the routes of OpenAI and Anthropic that generate. Any reply may "
      "also be 405 (another method), "
      "408 (sent too slowly), 414 or 431 (target or headers too long), all with the body of Error.";
  json document = {{"openapi", "3.1.0"},
                   {"info",
                    {{"title", "ParallelModel: " + info.model},
                     {"version", info.version},
                     {"description", can.architecture + (can.architecture.empty() ? "" : ", ") + "task " +
                                         std::string(to_string(can.task)) + ". " + limits}}},
                   {"servers", json::array({json{{"url", "/"}}})},
                   {"paths", paths},
                   {"components", components(router, can, info)}};
  if (info.keys) document["security"] = json::array({json{{"key", json::array()}}, json{{"header", json::array()}}});
  return document;
}

std::string openapi_page(const json& document) {
  const auto& info = document["info"];
  std::string page = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" +
                     escape_markup(info["title"].get<std::string>()) +
                     "</title><style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 "
                     "1em}pre{background:#f4f4f4;padding:.6em;overflow:auto}"
                     "h2{font-size:1.1em;margin-top:2em;border-top:1px solid #ccc;padding-top:1em}</style><h1>" +
                     escape_markup(info["title"].get<std::string>()) + "</h1><p>" +
                     escape_markup(info["description"].get<std::string>()) +
                     "</p><p><a href=\"openapi.json\">openapi.json</a></p>";
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      std::string upper;
      for (char c : method) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      page += "<h2><code>" + upper + " " + escape_markup(path) + "</code></h2><p>" +
              escape_markup(operation["summary"].get<std::string>()) + "</p>";
      if (operation.contains("parameters"))
        for (const auto& one : operation["parameters"])
          page += "<p><code>" + escape_markup(one["name"].get<std::string>()) + "</code> (" +
                  escape_markup(one["in"].get<std::string>()) + ") " + escape_markup(one.value("description", "")) +
                  "</p>";
      if (operation.contains("requestBody")) append_contents(page, "Body", operation["requestBody"]["content"]);
      for (const auto& [status, reply] : operation["responses"].items()) {
        if (status == "200")
          append_contents(page, "Reply", reply["content"]);
        else
          page += "<p>" + status + ": " + escape_markup(reply["description"].get<std::string>()) + "</p>";
      }
    }
  }
  page += "<h2>Errors</h2><pre>" + escape_markup(dump(document["components"]["schemas"]["Error"])) + "</pre></html>\n";
  return page;
}

}  // namespace pm::server
