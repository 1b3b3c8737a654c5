// The OpenAPI 3.1 document of this server: the router's own table, put into words. And the same as a page for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/abilities.h"
#include "worker/server/router.h"

namespace pm::server {

struct ApiFacts {
  std::string model;            ///< the name clients use
  std::string version;          ///< of this program
  bool keys = false;            ///< requests need an API key
  size_t payload_limit = 0;     ///< bytes of a body
};

/// Paths that need no API key.
bool open_to_all(std::string_view path);
/// "post_v1_embeddings", "get_generate_text_text"; `path` as in the document.
std::string operation_id(const std::string& method, const std::string& path);
/// "/generate_text/{text}" of "/generate_text/*".
std::string document_path(const Router::Route&);

/// Routes that this model serves, with the schemas that stand beside their parsers; statuses of errors that every route has are added.
nlohmann::json openapi_document(const Router&, const Abilities&, const ApiFacts&);

/// The document as one HTML page: no script, nothing fetched.
std::string openapi_page(const nlohmann::json& document);

}  // namespace pm::server
