// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/server_context.h"

#include "worker/server/http/api_error.h"
#include "worker/server/http/json_body.h"

namespace pm::server {

using nlohmann::json;

void refuse_unless_served(const ServerContext& context, const RoutedRequest& call) {
  const Capabilities& can = context.capabilities;
  if (can.serves(call.access->route)) return;
  std::string routes;
  for (const auto& route : can.routes()) routes += (routes.empty() ? "" : ", ") + route;
  throw ApiError(404, "not_served",
                 call.access->route + " is not served by this model, " +
                     (can.architecture.empty() ? context.names.first() : can.architecture) + " of task " +
                     std::string(to_string(can.task)) + "; it serves: " + routes);
}

json parse_route_body(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  json object = parse_object(call.request.body);
  const auto found = object.find("parameters");
  if (found == object.end()) return object;
  const json parameters = *found;
  object.erase("parameters");
  if (parameters.is_null()) return object;
  if (!parameters.is_object()) throw bad_field("parameters", json_excerpt(parameters), "an object of options");
  for (const auto& [name, value] : parameters.items()) {
    if (name == "parameters")
      throw ApiError(400, "unknown_field", "parameters.parameters is not a field of this request",
                     "parameters.parameters");
    if (object.contains(name))
      throw ApiError(400, "invalid_value", name.substr(0, 60) + " is given twice, once in parameters; leave one out",
                     name.substr(0, 60));
    object[name] = value;
  }
  return object;
}

}  // namespace pm::server
