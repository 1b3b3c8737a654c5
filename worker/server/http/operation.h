// SPDX-License-Identifier: Apache-2.0
// The description of a route for GET /openapi.json (an OpenAPI Operation Object), written next to the route's parser.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/server/http/openapi_schema.h"

namespace pm::server {

struct Operation {
  std::string summary;
  std::string path_parameter;                     ///< name of the path parameter for the '*' in the path
  schema::Properties query;                       ///< query parameters
  nlohmann::json body;                            ///< schema of the JSON request body; null: none
  nlohmann::json example;                         ///< an example of a valid body
  std::map<std::string, nlohmann::json> bodies;   ///< schemas of request bodies by other content types
  nlohmann::json reply;                           ///< schema of the JSON reply; null: none
  std::map<std::string, nlohmann::json> replies;  ///< schemas of replies by other content types
  std::map<int, nlohmann::json>
      other_replies;  ///< schemas of JSON replies of other statuses that are not errors, such as /health's 503
  const char* error_schema = "Error";  ///< the component that describes the body of errors
  std::vector<int> error_statuses;     ///< error statuses in addition to those that every route has
};

/// The error statuses of routes that run the model on a JSON body.
inline const std::vector<int> model_error_statuses{400, 404, 413, 429, 503};

}  // namespace pm::server
