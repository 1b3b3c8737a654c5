// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/client.h"

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <sstream>

#include "base/percent.h"
#include "worker/base/error.h"

namespace pm::hub {

namespace {

constexpr int most_redirects = 5;
constexpr size_t most_listing_bytes = 64 << 20, most_words = 4096;
constexpr std::chrono::seconds longest_pause{60}, max_retry_after{300};

[[noreturn]] void raise(const FetchError& error) { throw Error(error.reason, error.message); }

/// Returns the printable ASCII characters of a server's text, which goes to logs and JSON.
std::string harmless(std::string text, size_t most = 300) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = ' ';
  if (text.size() > most) text.resize(most);
  return text;
}

std::chrono::seconds retry_after(const Reply& reply) {
  const std::string text = reply.header("retry-after");
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::chrono::seconds(0);
  return std::chrono::seconds(std::stoi(text));
}

/// Classifies the hub's error reply for `what` ("model org/name", "file config.json of ...").
FetchError fetch_error(const Reply& reply, const Url& url, bool at_hub, bool token, const std::string& what) {
  const std::string from = url.origin();
  if (reply.status == 0 || !reply.failure.empty()) {
    return {Reason::SourceUnreachable,
            what + ": " + from + (reply.status == 0 ? " does not answer: " : " broke off: ") + reply.failure, true};
  }
  const std::string code = reply.header("x-error-code"), words = harmless(reply.header("x-error-message"));
  const std::string says = from + " answers " + std::to_string(reply.status) +
                           (code.empty() ? "" : " " + harmless(code, 64)) + (words.empty() ? "" : ": " + words);
  if (reply.status == 401 || reply.status == 403) {
    if (!at_hub) return {Reason::SourceUnreachable, what + ": " + says + "; a signed link may have run out", true};
    const char* advice =
        token
            ? "; does the token belong to an account that may read it, with the model's conditions accepted on the hub?"
            : "; it does not exist, or is private or gated: give a token (tokenSecretRef, --token-file) of an account "
              "that may read it";
    return {Reason::AuthFailed, what + ": " + says + advice};
  }
  if (reply.status == 404 && at_hub)
    return {Reason::RevisionNotFound, what + ": " + says + "; see the names of branches, tags and commits on the hub"};
  const bool transient =
      reply.status == 408 || reply.status == 425 || reply.status == 429 || reply.status >= 500 || !at_hub;
  return {Reason::SourceUnreachable, what + ": " + says, transient, retry_after(reply)};
}

/// Returns true when a Content-Range such as "bytes 100-199/500" begins at the requested offset.
bool begins_at(const Reply& reply, int64_t offset) {
  const std::string range = reply.header("content-range"), wanted = "bytes " + std::to_string(offset) + "-";
  return range.starts_with(wanted);
}

std::string unquoted(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, tag.size() - 2);
  return tag;
}

}  // namespace

std::string read_token(const std::string& file) {
  if (file.empty()) return "";
  std::ifstream in(file);
  std::string token;
  if (!in || !(in >> token))
    throw Error(Reason::AuthFailed,
                "the token file " + file +
                    " cannot be read or is empty; it must hold the hub's token (hf_...) and nothing else");
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  std::string more;
  if (in >> more || !printable || token.size() > 1024) {
    throw Error(Reason::AuthFailed,
                "the token file " + file +
                    " does not hold one printable word of at most 1024 characters; it must hold the hub's token "
                    "(hf_...) and nothing else");
  }
  return token;
}

std::optional<std::chrono::milliseconds> RetryPolicy::next(Clock::time_point now, const FetchError& error) {
  if (!since_) since_ = now;
  if (now - *since_ >= stall_timeout_) return std::nullopt;
  const auto whole =
      std::min<std::chrono::milliseconds>(longest_pause, std::chrono::seconds(1) * (1 << std::min(tries_++, 6)));
  const auto chance = std::uniform_int_distribution<int64_t>(0, whole.count() / 2)(random_);
  const auto pause = std::max<std::chrono::milliseconds>(whole - std::chrono::milliseconds(chance),
                                                         std::min(error.pause, max_retry_after));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*since_ + stall_timeout_ - now);
  return std::min(pause, std::max(left, std::chrono::milliseconds(1)));
}

Client::Client(Access access, std::chrono::seconds stall_timeout, std::stop_token stop, OnError on_error,
               Environment environment)
    : access_(std::move(access)),
      stall_timeout_(stall_timeout),
      stop_(std::move(stop)),
      on_error_(std::move(on_error)),
      transport_(std::move(environment)) {}

/// Follows redirects. The token is sent only to the endpoint's origin, and not after a redirect through another host.
Reply Client::follow(RedirectTarget& target, std::map<std::string, std::string> headers,
                     const std::function<bool(const Reply&)>& wanted,
                     const std::function<bool(std::string_view)>& take) {
  for (int hop = 0; hop <= most_redirects; ++hop) {
    if (stop_.stop_requested()) throw Error(Reason::Interrupted, "stopped");
    if (target.at_hub && !access_.token.empty())
      headers["Authorization"] = "Bearer " + access_.token;
    else
      headers.erase("Authorization");
    bool redirected = false;
    const Reply reply = transport_.get(
        target.url, headers,
        [&](const Reply& head) {
          redirected = head.status >= 300 && head.status < 400;
          return redirected || wanted(head);
        },
        [&](std::string_view bytes) { return !stop_.stop_requested() && (redirected || take(bytes)); });
    if (stop_.stop_requested()) throw Error(Reason::Interrupted, "stopped");
    if (!redirected) return reply;
    const auto next = redirect_from(target.url, reply.header("location"));
    if (!next) {
      Reply refused;
      refused.failure = "it redirects to \"" + harmless(reply.header("location"), 200) +
                        "\", which is no http(s) URL or leads from https to http";
      return refused;
    }
    target.url = *next;
    target.at_hub = target.at_hub && next->origin() == access_.endpoint.origin();
  }
  Reply refused;
  refused.failure = "more than " + std::to_string(most_redirects) + " redirects";
  return refused;
}

void Client::wait(RetryPolicy& retry, const FetchError& error) {
  if (!error.transient) raise(error);
  const auto pause = retry.next(RetryPolicy::Clock::now(), error);
  if (!pause) raise(error);
  if (on_error_) on_error_(error, *pause);
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop_, *pause, [] { return false; });
  if (stop_.stop_requested()) throw Error(Reason::Interrupted, "stopped");
}

Listing Client::list(const Repository& repository) {
  Url url = access_.endpoint;
  url.target += "/api/models/" + base::percent_encode(repository.id, "/") + "/revision/" +
                base::percent_encode(repository.revision) + "?blobs=true";
  const std::string what = "revision " + repository.revision + " of model " + repository.id;
  for (RetryPolicy retry(stall_timeout_);;) {
    std::string body;
    RedirectTarget target{url};
    const Reply reply = follow(
        target, {}, [](const Reply&) { return true; },
        [&](std::string_view bytes) {
          body.append(bytes);
          return body.size() <= most_listing_bytes;
        });
    if (reply.status == 200 && reply.failure.empty() && !reply.ended_early) return listing_of(body, url.origin());
    if (reply.ended_early)
      raise({Reason::SourceUnreachable, what + ": " + url.origin() + " answers more than 64 MiB; is it a hub?"});
    wait(retry, fetch_error(reply, target.url, target.at_hub, !access_.token.empty(), what));
  }
}

std::optional<FetchError> Client::stream(const std::string& id, const std::string& commit, const File& file,
                                         int64_t offset, int64_t bytes,
                                         const std::function<bool(std::string_view)>& take) {
  Url url = access_.endpoint;
  url.target += "/" + base::percent_encode(id, "/") + "/resolve/" + commit + "/" + base::percent_encode(file.path, "/");
  const std::string what = file.path + " of model " + id;
  std::map<std::string, std::string> headers;
  if (offset > 0 || offset + bytes < file.size)
    headers["Range"] = "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + bytes - 1);
  if (bytes == 0) return std::nullopt;
  int64_t skip = 0, left = bytes;
  std::optional<FetchError> other;
  const auto wanted = [&](const Reply& head) {
    if (head.status != 200 && head.status != 206) return false;
    if (head.status == 200) skip = offset;  // a server without range support sends the whole file
    const std::string tag = unquoted(head.header("x-linked-etag")), at = head.header("x-repo-commit");
    if (head.status == 206 && !begins_at(head, offset)) {
      other = FetchError{Reason::SourceUnreachable,
                         what + ": asked for bytes from " + std::to_string(offset) + " on, answered \"" +
                             harmless(head.header("content-range"), 64) + "\"",
                         true};
    } else if ((!tag.empty() && tag != file.name()) || (!at.empty() && at != commit)) {
      other = FetchError{Reason::ChecksumMismatch,
                         what + ": the hub lists " + file.name() + " at " + commit + " and serves " +
                             harmless(tag, 64) + " at " + harmless(at, 64),
                         true};
    }
    return !other;
  };
  bool taken = true;
  RedirectTarget target{url};
  const Reply reply = follow(target, std::move(headers), wanted, [&](std::string_view part) {
    const auto skipped = static_cast<size_t>(std::min<int64_t>(skip, static_cast<int64_t>(part.size())));
    skip -= static_cast<int64_t>(skipped);
    part.remove_prefix(skipped);
    if (part.empty()) return true;
    if (left == 0) return false;  // more than requested
    part = part.substr(0, static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(part.size()))));
    left -= static_cast<int64_t>(part.size());
    return taken = take(part);
  });
  if (other) return other;
  if (left == 0 || !taken) return std::nullopt;
  const bool good = reply.status == 200 || reply.status == 206;
  if (good && reply.failure.empty())
    return FetchError{Reason::SourceUnreachable,
                      what + ": " + target.url.origin() + " ended " + std::to_string(left) + " bytes early", true};
  return fetch_error(reply, target.url, target.at_hub, !access_.token.empty(), what);
}

std::string Client::read(const std::string& id, const std::string& commit, const File& file, int64_t offset,
                         int64_t bytes) {
  std::string out;
  for (RetryPolicy retry(stall_timeout_);;) {
    const auto error = stream(id, commit, file, offset + static_cast<int64_t>(out.size()),
                              bytes - static_cast<int64_t>(out.size()), [&](std::string_view part) {
                                out.append(part);
                                retry.progress();
                                return true;
                              });
    if (static_cast<int64_t>(out.size()) == bytes) return out;
    if (error) wait(retry, *error);
  }
}

}  // namespace pm::hub
