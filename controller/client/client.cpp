// SPDX-License-Identifier: Apache-2.0
#include "controller/client/client.h"

#include "controller/client/retry.h"
#include "controller/core/status_error.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;

const char* method_of(Verb verb) {
  switch (verb) {
    case Verb::Get:
    case Verb::List:
      return "GET";
    case Verb::Create:
      return "POST";
    case Verb::Apply:
    case Verb::MergePatch:
      return "PATCH";
    case Verb::Delete:
      break;
  }
  return "DELETE";
}

bool writes(Verb verb) { return verb != Verb::Get && verb != Verb::List; }

const char* content_type_of(Verb verb) {
  if (verb == Verb::Apply) return "application/apply-patch+yaml";  // JSON is YAML
  return verb == Verb::MergePatch ? "application/merge-patch+json" : "application/json";
}

std::string header(const HttpReply& reply, const char* name) {
  const auto found = reply.headers.find(name);
  return found == reply.headers.end() ? "" : found->second;
}

/// Returns Retry-After in seconds. API servers do not use its date form, which counts as absent.
double retry_after_of(const HttpReply& reply) {
  const std::string text = header(reply, "retry-after");
  return !text.empty() && text.size() < 9 && text.find_first_not_of("0123456789") == std::string::npos ? std::stod(text)
                                                                                                       : 0;
}

Response response_of(const HttpReply& reply) {
  if (!reply.status) return no_answer(reply.failure);
  if (reply.status < 200 || reply.status > 299) return classify(reply.status, reply.body, retry_after_of(reply));
  Json object = reply.body.empty() ? Json::object() : Json::parse(reply.body, nullptr, false);
  if (object.is_discarded()) return no_answer("the answer is not JSON: " + reply.body.substr(0, 128));
  return object;
}

/// Sleeps; returns false when it was stopped before.
bool pause(milliseconds duration, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, duration, [] { return false; });
  return !stop.stop_requested();
}

/// Combines the stop of the caller and of the client.
class EitherStop {
 public:
  EitherStop(std::stop_token a, std::stop_token b)
      : first_(std::move(a), Forward{source_}), second_(std::move(b), Forward{source_}) {}
  std::stop_token token() const { return source_.get_token(); }

 private:
  struct Forward {
    std::stop_source source;
    void operator()() { source.request_stop(); }
  };
  std::stop_source source_;
  std::stop_callback<Forward> first_, second_;
};

}  // namespace

Client::Client(ClusterConfig config, const Clock& clock, prometheus::Registry& registry, Deadlines deadlines,
               RateLimit limit)
    : config_(std::move(config)),
      clock_(clock),
      metrics_(registry, host_and_port(config_)),
      token_(config_.token, clock),
      pool_(config_, clock, deadlines),
      limiter_(limit) {
  if (config_.insecure)
    LOG(WARNING) << "insecure-skip-tls-verify is set: anybody between us and " << host_and_port(config_)
                 << " can act as the API server";
}

HttpRequest Client::prepare(const Request& request) {
  HttpRequest http;
  http.method = method_of(request.verb);
  http.path = config_.base_path + path_of(request);
  http.headers = {{"Accept", "application/json"}, {"User-Agent", "parallelmodel-controller"}};
  const std::string token = token_.get();
  if (!token.empty()) http.headers["Authorization"] = std::string("Bearer ").append(token);
  if (!request.body.is_null()) {
    http.body = request.body.dump(-1, ' ', false, Json::error_handler_t::replace);
    http.content_type = content_type_of(request.verb);
  }
  return http;
}

bool Client::wait_for_token(const Request& request) {
  const auto wait = limiter_.reserve(clock_.now());
  metrics_.limited(method_of(request.verb), std::chrono::duration<double>(wait).count());
  return wait.count() == 0 || pause(std::chrono::ceil<milliseconds>(wait), abort_.get_token());
}

HttpReply Client::attempt(const HttpRequest& request) {
  const auto begin = clock_.now();
  HttpReply reply;
  try {
    auto connection = pool_.take();
    reply = connection->send(request, abort_.get_token());
    if (reply.status) pool_.give(std::move(connection));
  } catch (const ConfigError& error) {
    reply.failure = error.what();
  }
  metrics_.requested(request.method, reply.status, std::chrono::duration<double>(clock_.now() - begin).count());
  const std::string warning = header(reply, "warning"), audit = header(reply, "audit-id");
  if (!warning.empty()) LOG(WARNING) << request.method << " " << request.path << ": " << warning;
  if (reply.status >= 400)
    VLOG(1) << request.method << " " << request.path << ": " << reply.status << ", audit-id " << audit;
  return reply;
}

Response Client::send(const Request& request) {
  RetryState state;
  while (true) {
    if (!wait_for_token(request)) return no_answer("stopped");
    if (writes(request.verb) && !may_write_())
      return no_answer("this process may not write any more: it does not hold the lease");
    const HttpRequest http = prepare(request);
    Response response = response_of(attempt(http));
    ++state.attempts;
    if (!failed(response)) return response;
    const ApiError& error = error_of(response);
    const auto wait = retry_after(state, request.verb, error);
    if (error.code == 401) {
      token_.expire();
      state.unauthorized_before = true;
    }
    if (!wait || !pause(*wait, abort_.get_token())) return response;
    state.waited += *wait;
    metrics_.retried(http.method, error.code);
  }
}

std::optional<ApiError> Client::watch(const Request& request, const std::function<bool(WatchEvent&&)>& sink,
                                      std::stop_token stop) {
  const EitherStop either(stop, abort_.get_token());
  const HttpRequest http = prepare(request);
  WatchDecoder decoder;
  std::optional<ApiError> in_stream;
  HttpReply reply;
  try {
    Connection connection(config_, {.read = std::chrono::seconds(90), .total = milliseconds(0)});
    reply = connection.stream(http, either.token(), [&](std::string_view bytes) {
      return decoder.feed(bytes, [&](WatchEvent&& event) {
        if (event.type == WatchEvent::Type::Error) {
          in_stream = classify_status(event.object);
          return false;
        }
        return sink(std::move(event));
      });
    });
  } catch (const ConfigError& error) {
    reply.failure = error.what();
  }
  metrics_.watched(reply.status);
  if (reply.status == 401) token_.expire();
  if (stop.stop_requested()) return {};
  return end_of_watch(reply, in_stream, decoder);
}

std::optional<ApiError> Client::end_of_watch(const HttpReply& reply, const std::optional<ApiError>& in_stream,
                                             const WatchDecoder& decoder) {
  if (in_stream) return in_stream;
  if (!decoder.error().empty()) return no_answer(decoder.error());
  if (!reply.status) return no_answer(reply.failure);
  if (reply.status != 200) return classify(reply.status, reply.body, retry_after_of(reply));
  if (decoder.partial()) return no_answer("the watch was cut in the middle of an event");
  return {};
}

}  // namespace pm::k8s
