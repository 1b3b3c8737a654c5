// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/json_response.h"

namespace pm::server {

using nlohmann::json;

http::Response json_response(const json& body, int status) {
  http::Response response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return response;
}

}  // namespace pm::server
