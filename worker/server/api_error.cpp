// See api_error.h.
#include "worker/server/api_error.h"

#include <nlohmann/json.hpp>

#include "worker/base/error.h"

namespace pm::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
  }
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

ApiError bad_field(const std::string& field, const std::string& found, const std::string& allowed) {
  return ApiError(400, "invalid_value", field + " is " + found + "; allowed: " + allowed, field);
}

ApiError unavailable(const std::string& code, const std::string& message, int retry_after) {
  ApiError error(503, code, message);
  error.retry_after = retry_after;
  return error;
}

ApiError as_api_error(const std::exception& exception) {
  if (const auto* api = dynamic_cast<const ApiError*>(&exception)) return *api;
  if (const auto* error = dynamic_cast<const Error*>(&exception)) {
    if (error->reason == "QueueFull") {
      ApiError full(429, "queue_full", error->what());
      full.retry_after = 1;
      return full;
    }
    if (error->kind == ErrorKind::Request) return ApiError(400, "invalid_value", error->what());
    if (error->kind == ErrorKind::RankLost) return unavailable("rank_lost", error->what(), 5);
  }
  return ApiError(500, "internal_error", "the server failed; its log has the cause under this request's id");
}

std::string error_body(const ApiError& error, const std::string& request_id) {
  nlohmann::json object = {{"message", error.what()}, {"type", type_of(error.status)}, {"param", nullptr}, {"code", error.code},
                           {"request_id", request_id}};
  if (!error.param.empty()) object["param"] = error.param;
  return nlohmann::json{{"error", object}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pm::server
