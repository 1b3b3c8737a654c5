// An answer sent as server-sent events while it is generated.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/answer.h"

namespace pm::server {

/// How a route words its events. `send` is false when the client is gone, and so is what these return then.
struct EventShape {
  using Send = std::function<bool(const nlohmann::json&)>;
  std::function<bool(const Send&)> begin;                                                 ///< before the first token; may be absent
  std::function<bool(const Send&, size_t choice, const std::string& text)> piece;         ///< after each event of a choice
  std::function<bool(const Send&)> end;                                                   ///< after the last; may be absent
  bool done = true;                                                                       ///< "[DONE]" at the end, as OpenAI's
};

/// The reply that does it. The stream runs after the handler, so `shape` owns what it needs. A failure under way becomes an event with the error.
http::Response event_stream(const Serving&, const Call&, std::shared_ptr<Answer>, EventShape);

/// JSON text in which bytes that are no UTF-8 are replaced.
std::string dump(const nlohmann::json& value);

/// Runs an answer to its end; nothing is returned for a client that is gone, and the reply is then for the log alone.
bool run_whole(Answer&, const Call&, const std::function<void(size_t choice, const std::string& text)>& collect);
http::Response nobody_there();

}  // namespace pm::server
