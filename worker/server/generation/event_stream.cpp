// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/event_stream.h"

#include "worker/server/http/api_error.h"

namespace pm::server {

using nlohmann::json;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// 499 is nginx's status for a client that closed the connection.
http::Response client_gone_response() {
  http::Response response;
  response.status = 499;
  response.close = true;
  return response;
}

bool run_to_completion(OutputProcessor& output, const RoutedRequest& call,
                       const std::function<void(size_t, const std::string&)>& collect) {
  return output.run(
      [&](size_t choice, const std::string& text) {
        collect(choice, text);
        return true;
      },
      call.request.client_gone);
}

http::Response event_stream(const ServerContext& context, const RoutedRequest& call,
                            std::shared_ptr<OutputProcessor> output, StreamFormat format) {
  http::Response response;
  response.content_type = "text/event-stream; charset=utf-8";
  response.stream = [output = std::move(output), format = std::move(format), id = call.request.id,
                     stream_write_timeout = context.stream_write_timeout](http::Stream& stream) {
    const auto& form = format.form;
    const StreamFormat::Send send = [&](const json& body) {
      return stream.write(form ? form->events(body) : "data: " + dump(body) + "\n\n");
    };
    try {
      if (format.on_start && !format.on_start(send)) return;
      const auto on_text = [&](size_t choice, const std::string& text) { return format.on_text(send, choice, text); };
      if (!output->run(on_text, [&] { return stream.client_gone(); }, stream_write_timeout)) return;
      if (format.on_end && !format.on_end(send)) return;
      if (form)
        stream.write(form->end());
      else if (format.send_done)
        stream.write("data: [DONE]\n\n");
    } catch (const std::exception& exception) {
      const ApiError error = as_api_error(exception);
      stream.write(form ? form->failure(error, id) : "data: " + error_body(error, id) + "\n\n");
    }
  };
  return response;
}

}  // namespace pm::server
