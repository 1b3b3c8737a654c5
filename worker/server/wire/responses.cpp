// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/responses.h"

#include <cstdio>

#include "worker/server/generation/chat.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/json_response.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/wire/listed_items.h"
#include "worker/server/wire/response_store.h"
#include "worker/server/wire/responses_form.h"
#include "worker/server/wire/responses_request.h"
#include "worker/server/wire/wire_event.h"

#include "base/log.h"

namespace pm::server {
namespace {

using nlohmann::ordered_json;

/// Returns an id that nobody can guess, because it opens the conversation.
std::string make_id(const ServerContext& context) {
  char text[40];
  std::snprintf(text, sizeof text, "resp_%016llx%016llx", static_cast<unsigned long long>(context.random()),
                static_cast<unsigned long long>(context.random()));
  return text;
}

ApiError unknown_response(int status, const std::string& id, const std::string& field) {
  return ApiError(status, "response_not_found",
                  field + " is " + json_excerpt(id) +
                      "; this server has no such response: it was stored by another replica or before a restart, was "
                      "deleted, had store: false, or made room for newer ones. Send the whole conversation as input",
                  field);
}

/// Returns the id in the path of a request.
std::string requested_id(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  return percent_decode(call.path_suffix);
}

/// Returns the turns up to an earlier response.
FindEarlierTurns stored_turns(ResponseStore& store) {
  return [&store](const std::string& id) {
    const auto found = store.get(id);
    if (!found) throw unknown_response(400, id, "previous_response_id");
    EarlierTurns turns{ordered_json::parse(found->conversation), ordered_json::parse(found->items)};
    ordered_json response = ordered_json::parse(found->body);
    for (ordered_json& item : response.at("output")) turns.items.push_back(std::move(item));
    return turns;
  };
}

}  // namespace

http::Response create_response(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  UnknownFields unknown(context.strict_requests);
  ResponseStore& store = *context.responses;
  ResponseHead head{.id = make_id(context),
                    .model = {},
                    .created_at = context.unix_time(),
                    .request = parse_responses(call.request.body, stored_turns(store), unknown)};
  head.model = context.names.in_replies(head.request.model);
  const std::string chat = std::move(head.request.chat);
  ResponsesForm::Finished finished;
  if (head.request.store)
    finished = [&store](const std::string& id, StoredResponse response) {
      if (!store.put(id, std::move(response))) LOG(WARNING) << id << " is too large to be stored";
    };
  try {
    http::Response response =
        complete_chat(context, call, chat, std::make_shared<ResponsesForm>(std::move(head), std::move(finished)));
    unknown.report(call, response);
    return response;
  } catch (const ApiError& error) {
    throw with_own_names(error, responses_field_names());
  }
}

http::Response count_response_tokens(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  UnknownFields unknown(context.strict_requests);
  const ResponsesRequest request = parse_responses(call.request.body, stored_turns(*context.responses), unknown);
  try {
    http::Response response = json_response(
        {{"object", "response.input_tokens"}, {"input_tokens", count_chat_tokens(context, request.chat)}});
    unknown.report(call, response);
    return response;
  } catch (const ApiError& error) {
    throw with_own_names(error, responses_field_names());
  }
}

http::Response get_response(const ServerContext& context, const RoutedRequest& call) {
  const std::string id = requested_id(context, call);
  if (call.request.query.find("stream=true") != std::string::npos)
    throw ApiError(400, "invalid_value", "stream is true; allowed: false, because a stored response is whole",
                   "stream");
  auto found = context.responses->get(id);
  if (!found) throw unknown_response(404, id, "response_id");
  http::Response response;
  response.body = std::move(found->body);
  return response;
}

http::Response list_input_items(const ServerContext& context, const RoutedRequest& call) {
  const std::string id = requested_id(context, call);
  const auto found = context.responses->get(id);
  if (!found) throw unknown_response(404, id, "response_id");
  UnknownFields unknown(context.strict_requests);
  http::Response response;
  response.body = json_text(item_page(ordered_json::parse(found->items), call.request.query, unknown));
  unknown.report(call, response);
  return response;
}

http::Response delete_response(const ServerContext& context, const RoutedRequest& call) {
  const std::string id = requested_id(context, call);
  if (!context.responses->remove(id)) throw unknown_response(404, id, "response_id");
  return json_response({{"id", id}, {"object", "response"}, {"deleted", true}});
}

}  // namespace pm::server
