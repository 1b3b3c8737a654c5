// SPDX-License-Identifier: Apache-2.0
#include "controller/core/status_error.h"

#include <algorithm>

namespace pm::k8s {
namespace {

Json parse_status(const std::string& body) {
  Json status = Json::parse(body, nullptr, false);
  return status.is_object() && status.value("kind", Json()) == "Status" ? status : Json();
}

std::string text(const Json& status, const char* name) {
  if (!status.is_object()) return "";
  const auto found = status.find(name);
  return found != status.end() && found->is_string() ? found->get<std::string>() : "";
}

double details_retry(const Json& status) {
  if (!status.is_object() || !status.contains("details") || !status["details"].is_object()) return 0;
  const Json seconds = status["details"].value("retryAfterSeconds", Json());
  return seconds.is_number() ? std::max(0.0, seconds.get<double>()) : 0;
}

/// Recognizes a server-side apply with an unknown field: the server returns 500, although a retry can never succeed.
bool unknown_field(const std::string& message) {
  return message.find("field not declared in schema") != std::string::npos;
}

Failure failure_of(int code, const std::string& reason, const std::string& message) {
  switch (code) {
    case 400:
    case 405:
    case 406:
    case 413:
    case 415:
    case 422:
      return Failure::Invalid;
    case 401:
      return Failure::Unauthorized;
    case 403:
      return Failure::Forbidden;
    case 404:
      return Failure::NotFound;
    case 408:
      return Failure::Transient;
    case 409:
      return reason == "AlreadyExists" ? Failure::AlreadyExists : Failure::Conflict;
    case 410:
      return Failure::Gone;
    case 429:
      return Failure::TooManyRequests;
    case 500:
      return unknown_field(message) ? Failure::Invalid : Failure::Transient;
    default:
      return code >= 500 ? Failure::Transient : Failure::Permanent;
  }
}

const char* name_of(Failure failure) {
  switch (failure) {
    case Failure::NotFound:
      return "NotFound";
    case Failure::AlreadyExists:
      return "AlreadyExists";
    case Failure::Conflict:
      return "Conflict";
    case Failure::Gone:
      return "Gone";
    case Failure::TooManyRequests:
      return "TooManyRequests";
    case Failure::Invalid:
      return "Invalid";
    case Failure::Unauthorized:
      return "Unauthorized";
    case Failure::Forbidden:
      return "Forbidden";
    case Failure::Transient:
      return "Transient";
    case Failure::Permanent:
      break;
  }
  return "Permanent";
}

}  // namespace

ApiError classify(int code, const std::string& body, double retry_after) {
  const Json status = parse_status(body);
  ApiError error;
  error.code = code;
  error.reason = text(status, "reason");
  error.message = status.is_null() ? body.substr(0, 256) : text(status, "message");  // a proxy's page may be long
  error.retry_after = retry_after > 0 ? retry_after : details_retry(status);
  error.failure = failure_of(code, error.reason, error.message);
  return error;
}

ApiError classify_status(const Json& status) {
  const Json code = status.is_object() ? status.value("code", Json()) : Json();
  ApiError error;
  error.code = code.is_number_integer() ? code.get<int>() : 500;
  error.reason = text(status, "reason");
  error.message = text(status, "message");
  error.retry_after = details_retry(status);
  error.failure = error.reason == "Expired" || error.reason == "Gone"
                      ? Failure::Gone
                      : failure_of(error.code, error.reason, error.message);
  return error;
}

ApiError no_answer(const std::string& message) { return {Failure::Transient, 0, "NoAnswer", message, 0}; }

bool transient(const ApiError& error) {
  return error.failure == Failure::Transient || error.failure == Failure::TooManyRequests;
}

std::string to_string(const ApiError& error) {
  const std::string reason = error.reason.empty() ? name_of(error.failure) : error.reason;
  return (error.code ? std::to_string(error.code) + " " : "") + reason + ": " + error.message;
}

}  // namespace pm::k8s
