// SPDX-License-Identifier: Apache-2.0
// Sends an answer as server-sent events while it is generated, or runs it to its end.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/generation/chat_form.h"
#include "worker/server/generation/output_processor.h"

namespace pm::server {

/// The callbacks with which a route formats its events. `send` returns false when the client is gone; a callback then
/// returns false too.
struct StreamFormat {
  using Send = std::function<bool(const nlohmann::json&)>;
  std::function<bool(const Send&)> on_start;  ///< before the first token; may be absent
  std::function<bool(const Send&, size_t choice, const std::string& text)>
      on_text;                              ///< after each engine event of a choice
  std::function<bool(const Send&)> on_end;  ///< after the last token; may be absent
  bool send_done = true;                    ///< the stream ends with "[DONE]", as OpenAI's does
  std::shared_ptr<ChatForm> form;           ///< writes the events instead; absent: a "data:" line for each body
};

/// Returns the reply that streams the events. The stream runs after the handler has returned, so the format owns what
/// it needs. A failure during the stream becomes an event with the error.
http::Response event_stream(const ServerContext&, const RoutedRequest&, std::shared_ptr<OutputProcessor>, StreamFormat);

/// Returns JSON text in which bytes that are not valid UTF-8 are replaced.
std::string dump(const nlohmann::json& value);

/// Runs an answer to its end. Returns false when the client is gone; the handler then returns client_gone_response().
bool run_to_completion(OutputProcessor&, const RoutedRequest&,
                       const std::function<void(size_t choice, const std::string& text)>& collect);
/// Returns the reply with status 499, which only the access log sees.
http::Response client_gone_response();

}  // namespace pm::server
