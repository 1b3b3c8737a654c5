// SPDX-License-Identifier: Apache-2.0
// Errors of the API: an HTTP status with OpenAI's error object.
#pragma once
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace pm::server {

/// The exception of handlers. `code` is a stable word for programs, what() the message, `param` the invalid field.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string code, const std::string& message, std::string param = "")
      : std::runtime_error(message), status(status), code(std::move(code)), param(std::move(param)) {}
  int status;
  std::string code, param;
  int retry_after = 0;  ///< seconds; 0: no Retry-After header
};

/// Returns a 400 for a field: "temperature is 3; allowed: a number from 0 to 2".
ApiError bad_field(const std::string& field, const std::string& found, const std::string& allowed);
/// Returns a 503 with Retry-After in seconds.
ApiError unavailable(const std::string& code, const std::string& message, int retry_after = 1);
/// Converts an exception to the client's error: an ApiError is returned as is, a pm::Error by its kind, anything else
/// becomes a 500 without its text.
ApiError as_api_error(const std::exception&);

/// An error code of the API with its meaning.
struct ErrorCode {
  const char* code;
  const char* meaning;
};
/// Returns all error codes; GET /openapi.json lists them.
std::span<const ErrorCode> error_codes();

/// Returns the JSON body {"error": {"message", "type", "param", "code", "request_id"}}. `type` follows from the status,
/// as OpenAI's clients expect.
std::string error_body(const ApiError&, const std::string& request_id);

}  // namespace pm::server
