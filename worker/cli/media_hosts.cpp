// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/media_hosts.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>

#include "worker/base/error.h"
#include "worker/hub/transport.h"

namespace pm::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t most_bytes = size_t{64} << 20;
constexpr std::chrono::seconds longest{60};
constexpr int most_redirects = 4, http_port = 80, https_port = 443;

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::InvalidRequest, message); }

std::string in_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

bool redirects(int status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

}  // namespace

MediaHosts::MediaHosts(const std::vector<std::string>& hosts, hub::Environment environment)
    : environment_(std::move(environment)) {
  for (const std::string& host : hosts) {
    const auto url = host.find('/') == std::string::npos ? hub::parse_url("https://" + host + "/") : std::nullopt;
    if (!url || url->host.empty())
      throw Error(Reason::Usage, "--media-host is \"" + host + "\", expected HOST or HOST:PORT");
    hosts_.push_back({in_lower_case(url->host), url->port == https_port && !host.ends_with(":443") ? 0 : url->port});
  }
}

bool MediaHosts::lists(const hub::Url& url) const {
  const int usual = url.tls ? https_port : http_port;
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) {
    return host.name == in_lower_case(url.host) && url.port == (host.port == 0 ? usual : host.port);
  });
}

std::string MediaHosts::fetch(const std::string& text) const {
  std::optional<hub::Url> url = hub::parse_url(text);
  if (!url) refuse("it is no URL of a host");
  hub::Transport transport(environment_);
  const auto end = Clock::now() + longest;
  for (int hop = 0; hop <= most_redirects; ++hop) {
    const std::string origin = url->origin();
    if (Clock::now() > end) refuse("redirects took more than " + std::to_string(longest.count()) + " s");
    if (!lists(*url)) refuse(origin + " is no host that this server fetches from (--media-host)");
    std::string body;
    bool too_large = false, too_slow = false;
    const auto wanted = [](const hub::Reply& reply) { return reply.status == 200; };
    const auto take = [&](std::string_view piece) {
      too_large = body.size() + piece.size() > most_bytes;
      too_slow = Clock::now() > end;
      if (too_large || too_slow) return false;
      body += piece;
      return true;
    };
    const hub::Reply reply = transport.get(*url, {}, wanted, take);
    if (too_large) refuse(origin + " sends more than " + std::to_string(most_bytes >> 20) + " MiB");
    if (too_slow) refuse(origin + " sends for more than " + std::to_string(longest.count()) + " s");
    if (redirects(reply.status)) {
      url = hub::redirect_from(*url, reply.header("location"));
      if (!url) refuse(origin + " redirects to no other URL, or from https to http");
      continue;
    }
    if (reply.status == 0 || (reply.status == 200 && !reply.failure.empty()))
      refuse(origin + " does not answer: " + reply.failure);
    if (reply.status != 200) refuse(origin + " answers with the status " + std::to_string(reply.status));
    if (body.empty()) refuse(origin + " answers with nothing");
    return body;
  }
  refuse("there are more than " + std::to_string(most_redirects) + " redirects");
}

}  // namespace pm::cli
