// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/api_error.h"

#include <nlohmann/json.hpp>

#include "worker/base/error.h"

namespace pm::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
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
    if (error->reason == Reason::QueueFull) {
      ApiError full(429, "queue_full", error->what());
      full.retry_after = 1;
      return full;
    }
    if (error->kind == ErrorKind::Request) return ApiError(400, "invalid_value", error->what());
    if (error->kind == ErrorKind::RankLost) return unavailable("rank_lost", error->what(), 5);
  }
  return ApiError(500, "internal_error", "the server failed; its log has the cause under this request's id");
}

std::span<const ErrorCode> error_codes() {
  static constexpr ErrorCode error_codes[] = {
      {"audio_too_large", "the audio is longer than allowed"},
      {"constraint_failed", "no token continues the answer as its constraint demands, or finding one takes too much"},
      {"context_length_exceeded", "the request has more tokens than the model accepts"},
      {"draining", "this replica is shutting down; retry, and another replica takes the request"},
      {"header_too_large", "the request's line and headers are too long"},
      {"image_too_large", "the image has more pixels than allowed"},
      {"internal_error", "the server failed"},
      {"invalid_api_key", "the API key is not one of this server's"},
      {"invalid_audio", "the audio is not a readable WAV, FLAC, OGG or MP3"},
      {"invalid_constraint", "the schema, regular expression or grammar is wrong or not supported"},
      {"invalid_image", "the image is not a readable PNG, JPEG or WebP"},
      {"invalid_json", "the body is not a JSON object, or is nested too deeply"},
      {"invalid_range", "Range requests are not supported"},
      {"invalid_safetensors", "the body is not a safetensors file"},
      {"invalid_value", "a field's value is not allowed"},
      {"loading", "the model is loading"},
      {"malformed_request", "the request is not well-formed HTTP/1.1"},
      {"method_not_allowed", "the path does not support this method"},
      {"missing_api_key", "the request has no API key"},
      {"missing_field", "a field is missing"},
      {"model_not_found", "the server does not serve this model"},
      {"no_chat_template", "the model has no chat template; send the prompt to /v1/completions"},
      {"no_feature_extractor", "the checkpoint has no feature extractor configuration"},
      {"no_image_processor", "the checkpoint has no image processor configuration"},
      {"no_mask", "the text has no mask token"},
      {"no_mask_token", "the tokenizer has no mask token"},
      {"no_tokenizer", "the model has no tokenizer; send token ids"},
      {"out_of_memory", "the device memory is too small for the inputs of this request"},
      {"not_found", "no such path"},
      {"not_served", "the model does not support this route"},
      {"queue_full", "the waiting queue is full"},
      {"rank_lost", "a rank was lost; the replica restarts"},
      {"response_not_found", "this server does not have the response"},
      {"request_timeout", "the client sent the request too slowly"},
      {"thread_unsupported_request", "the server keeps no threads of messages"},
      {"too_large", "the body or the reply is too large"},
      {"too_many_inputs", "the request has more inputs than allowed"},
      {"unknown_field", "the route does not have this field"},
      {"unsupported_encoding", "the Content-Encoding of the body is not supported"},
      {"uri_too_long", "the request's target is too long"},
  };
  return error_codes;
}

std::string error_body(const ApiError& error, const std::string& request_id) {
  nlohmann::json object = {{"message", error.what()},
                           {"type", type_of(error.status)},
                           {"param", nullptr},
                           {"code", error.code},
                           {"request_id", request_id}};
  if (!error.param.empty()) object["param"] = error.param;
  return nlohmann::json{{"error", object}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pm::server
