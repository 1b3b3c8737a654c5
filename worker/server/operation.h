// What a route takes and gives: its part of GET /openapi.json, written beside the route's parser.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/server/schema.h"

namespace pm::server {

struct Operation {
  std::string summary;
  std::string rest;                                ///< what stands for the '*' at the path's end: "text"
  schema::Properties query;                        ///< parameters behind '?'
  nlohmann::json body;                             ///< schema of a JSON body; null: the route reads none
  nlohmann::json example;                          ///< a body that is answered with 200
  std::map<std::string, nlohmann::json> bodies;    ///< schemas of bodies of other content types
  nlohmann::json reply;                            ///< schema of the JSON reply; null: none
  std::map<std::string, nlohmann::json> replies;   ///< schemas of replies of other content types
  std::map<int, nlohmann::json> other_replies;     ///< schemas of JSON replies of other statuses that are no Error: /health's 503
  std::vector<int> refusals;                       ///< statuses of errors of its own, beside those that every route has
};

/// Statuses of errors of routes that run the model on a JSON body.
inline const std::vector<int> kModelRefusals{400, 404, 413, 429, 503};

}  // namespace pm::server
