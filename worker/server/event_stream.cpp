// See event_stream.h.
#include "worker/server/event_stream.h"

#include "worker/server/api_error.h"

namespace pm::server {

using nlohmann::json;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// The status that nginx made common for a client that went away.
http::Response nobody_there() {
  http::Response response;
  response.status = 499;
  response.close = true;
  return response;
}

bool run_whole(Answer& answer, const Call& call, const std::function<void(size_t, const std::string&)>& collect) {
  return answer.run([&](size_t choice, const std::string& text) { collect(choice, text); return true; }, call.request.client_gone);
}

http::Response event_stream(const Serving& serving, const Call& call, std::shared_ptr<Answer> answer, EventShape shape) {
  http::Response response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.stream = [answer = std::move(answer), shape = std::move(shape), id = call.request.id, patience = serving.patience](http::Stream& stream) {
    const EventShape::Send send = [&](const json& body) { return stream.write("data: " + dump(body) + "\n\n"); };
    try {
      if (shape.begin && !shape.begin(send)) return;
      const auto piece = [&](size_t choice, const std::string& text) { return shape.piece(send, choice, text); };
      if (!answer->run(piece, [&] { return stream.client_gone(); }, patience)) return;
      if (shape.end && !shape.end(send)) return;
      if (shape.done) stream.write("data: [DONE]\n\n");
    } catch (const std::exception& exception) {
      stream.write("data: " + error_body(as_api_error(exception), id) + "\n\n");
    }
  };
  return response;
}

}  // namespace pm::server
