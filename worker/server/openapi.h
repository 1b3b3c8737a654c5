// SPDX-License-Identifier: Apache-2.0
// Makes the OpenAPI 3.1 document of this server from the router's table, as JSON and as an HTML page.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/http/router.h"
#include "worker/server/serving/capabilities.h"

namespace pm::server {

struct ApiInfo {
  std::string model;         ///< the model's name in the API
  std::string version;       ///< the program's version
  bool keys = false;         ///< requests need an API key
  size_t payload_limit = 0;  ///< bytes of a body
};

/// Returns whether a path needs no API key.
bool is_public_path(std::string_view path);
/// Returns an operationId such as "post_v1_embeddings" or "get_generate_text_text". `path` is the document's path.
std::string operation_id(const std::string& method, const std::string& path);
/// Returns the path template of a route: "/generate_text/{text}" for "/generate_text/*".
std::string document_path(const Router::Route&);

/// Returns the document with the routes that this model supports. The statuses of errors that every route can return
/// are added to the operations.
nlohmann::json openapi_document(const Router&, const Capabilities&, const ApiInfo&);

/// Returns the document as one HTML page without scripts or external resources.
std::string openapi_page(const nlohmann::json& document);

}  // namespace pm::server
