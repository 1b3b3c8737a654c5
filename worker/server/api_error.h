// An error as the API answers it: an HTTP status and OpenAI's error object.
#pragma once
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace pm::server {

/// Thrown by handlers. `code` is a word for programs, what() the sentence for people, `param` the field at fault.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string code, const std::string& message, std::string param = "")
      : std::runtime_error(message), status(status), code(std::move(code)), param(std::move(param)) {}
  int status;
  std::string code, param;
  int retry_after = 0;   ///< seconds; 0: no Retry-After header
};

/// 400 of a field: "temperature is 3; allowed: a number from 0 to 2".
ApiError bad_field(const std::string& field, const std::string& found, const std::string& allowed);
/// 503 with Retry-After.
ApiError unavailable(const std::string& code, const std::string& message, int retry_after = 1);
/// What a caught exception means to the client: ApiError itself, pm::Error by its kind, anything else 500 without its text.
ApiError as_api_error(const std::exception&);

/// Every code that an answer may carry, and what it means: GET /openapi.json lists them.
struct ErrorCode { const char* code; const char* meaning; };
std::span<const ErrorCode> error_codes();

/// {"error": {"message", "type", "param", "code", "request_id"}}. `type` follows from the status, as OpenAI's clients expect.
std::string error_body(const ApiError&, const std::string& request_id);

}  // namespace pm::server
