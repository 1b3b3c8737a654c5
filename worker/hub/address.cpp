// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "worker/base/error.h"

namespace pm::hub {

namespace {

constexpr std::string_view scheme = "hf://";
constexpr const char* public_hub = "https://huggingface.co";

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::Usage, message); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool one_of(char c, std::string_view more) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         more.find(c) != std::string_view::npos;
}

/// Returns true when a part of an id follows the hub's rule: 1 to 96 of letters, digits and -._, no '.' or '-' at the
/// ends, no "--" and no
/// "..".
bool good_part(std::string_view part) {
  if (part.empty() || part.size() > 96 ||
      !std::all_of(part.begin(), part.end(), [](char c) { return one_of(c, "-._"); }))
    return false;
  return std::string_view("-.").find(part.front()) == std::string_view::npos &&
         std::string_view("-.").find(part.back()) == std::string_view::npos &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

std::optional<int> port_of(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  const int port = std::atoi(std::string(text).c_str());
  return port >= 1 && port <= 65535 ? std::optional(port) : std::nullopt;
}

/// "host:port", "[::1]:port"
bool read_authority(std::string_view authority, Url& url) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return false;
    url.host = lower(authority.substr(1, end - 1));
    authority.remove_prefix(end + 1);
    in6_addr address;
    if (inet_pton(AF_INET6, url.host.c_str(), &address) != 1) return false;
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = lower(authority.substr(0, colon));
    authority.remove_prefix(colon);
    if (url.host.empty() || url.host.size() > 253 ||
        !std::all_of(url.host.begin(), url.host.end(), [](char c) { return one_of(c, "-._"); }))
      return false;
  }
  if (authority.empty()) return true;
  const auto port = authority.starts_with(':') ? port_of(authority.substr(1)) : std::nullopt;
  url.port = port.value_or(0);
  return port.has_value();
}

/// "10.0.0.0/8" holds "10.1.2.3".
bool in_range(const std::string& range, const std::string& host) {
  const size_t slash = range.find('/');
  in_addr network, address;
  if (slash == std::string::npos || inet_pton(AF_INET, range.substr(0, slash).c_str(), &network) != 1 ||
      inet_pton(AF_INET, host.c_str(), &address) != 1)
    return false;
  const std::string bits = range.substr(slash + 1);
  if (bits.empty() || bits.size() > 2 || bits.find_first_not_of("0123456789") != std::string::npos ||
      std::stoi(bits) > 32)
    return false;
  const uint32_t mask = bits == "0" ? 0 : ~uint32_t{0} << (32 - std::stoi(bits));
  return (ntohl(network.s_addr) & mask) == (ntohl(address.s_addr) & mask);
}

bool named(std::string entry, const Url& url) {
  entry.erase(std::remove_if(entry.begin(), entry.end(), [](char c) { return c == ' ' || c == '\t'; }), entry.end());
  entry = lower(entry);
  if (entry == "*") return true;
  if (in_range(entry, url.host)) return true;
  const size_t colon = entry.rfind(':');
  if (colon != std::string::npos && entry.find(':') == colon) {  // one colon: a port; more: an IPv6 address
    if (entry.substr(colon + 1) != std::to_string(url.port)) return false;
    entry.resize(colon);
  }
  while (entry.starts_with('.') || entry.starts_with('*')) entry.erase(0, 1);
  return !entry.empty() && (url.host == entry || url.host.ends_with("." + entry));
}

std::string either(const Environment& environment, const std::string& lower_name, const std::string& upper_name) {
  const auto value = environment(lower_name);
  return value && !value->empty() ? *value : environment(upper_name).value_or("");
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size())
      out += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16)), i += 2;
    else
      out += text[i];
  }
  return out;
}

}  // namespace

bool names_repository(std::string_view text) { return text.starts_with(scheme); }

Repository repository_of(const std::string& text, const std::string& revision) {
  Repository out;
  std::string_view rest(text);
  if (names_repository(rest)) rest.remove_prefix(scheme.size());
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!revision.empty() && revision != out.revision)
      refuse("\"" + text + "\" names the revision " + out.revision + ", --revision says " + revision +
             "; give one of them");
  }
  if (!revision.empty()) out.revision = revision;
  const size_t slash = rest.find('/');
  const bool good = slash == std::string_view::npos
                        ? good_part(rest)
                        : good_part(rest.substr(0, slash)) && good_part(rest.substr(slash + 1));
  if (!good)
    refuse("\"" + text + "\" is no name of a model; write hf://ORG/NAME, for example hf://openai-community/gpt2");
  out.id = rest;
  const bool clean = std::all_of(out.revision.begin(), out.revision.end(), [](char c) { return one_of(c, "-._/"); });
  if (out.revision.empty() || out.revision.size() > 128 || !clean ||
      ("/" + out.revision + "/").find("/../") != std::string::npos) {
    refuse("\"" + out.revision + "\" is no revision: a branch, tag or commit of letters, digits and -._/");
  }
  return out;
}

std::string Url::origin() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return (tls ? "https://" : "http://") + name + (port == (tls ? 443 : 80) ? "" : ":" + std::to_string(port));
}

std::optional<Url> parse_url(std::string_view text) {
  Url url;
  const std::string head = lower(text.substr(0, 8));
  url.tls = head == "https://";
  if (!url.tls && !head.starts_with("http://")) return std::nullopt;
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 0x7f; }))
    return std::nullopt;
  text.remove_prefix(url.tls ? 8 : 7);
  url.port = url.tls ? 443 : 80;
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  if (!read_authority(text.substr(0, end), url)) return std::nullopt;
  url.target = text.substr(end, text.find('#', end) - end);
  if (!url.target.starts_with('/')) url.target = "/" + url.target;
  return url;
}

std::optional<Url> redirect_from(const Url& here, const std::string& location) {
  std::optional<Url> there;
  if (location.starts_with("//"))
    there = parse_url((here.tls ? "https:" : "http:") + location);
  else if (location.starts_with('/'))
    there = parse_url(here.origin() + location);
  else
    there = parse_url(location);
  if (there && here.tls && !there->tls) return std::nullopt;
  return there;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<std::string> real_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Url endpoint_of(const Environment& environment) {
  std::string text = environment("HF_ENDPOINT").value_or("");
  if (text.empty()) text = public_hub;
  auto url = parse_url(text);
  if (!url || url->target.find('?') != std::string::npos)
    refuse("HF_ENDPOINT is no URL of a hub; write for example https://hub.example.com");
  while (url->target.ends_with('/')) url->target.pop_back();
  return *url;
}

std::optional<Proxy> proxy_for(const Url& url, const Environment& environment) {
  const std::string text =
      url.tls ? either(environment, "https_proxy", "HTTPS_PROXY") : either(environment, "http_proxy", "HTTP_PROXY");
  if (text.empty()) return std::nullopt;
  std::string exceptions = either(environment, "no_proxy", "NO_PROXY") + ",";
  for (size_t comma; (comma = exceptions.find(',')) != std::string::npos; exceptions.erase(0, comma + 1)) {
    if (named(exceptions.substr(0, comma), url)) return std::nullopt;
  }
  std::string rest = text.find("://") == std::string::npos ? "http://" + text : text;
  Proxy proxy;
  if (const size_t at = rest.rfind('@'); at != std::string::npos && rest.starts_with("http://")) {
    const std::string user = rest.substr(7, at - 7);
    const size_t colon = std::min(user.find(':'), user.size());
    proxy.user = decoded(std::string_view(user).substr(0, colon));
    proxy.password = colon < user.size() ? decoded(std::string_view(user).substr(colon + 1)) : "";
    rest = "http://" + rest.substr(at + 1);
  }
  const auto place = parse_url(rest);
  if (!place || place->tls)
    refuse(std::string("the proxy of ") + (url.tls ? "HTTPS_PROXY" : "HTTP_PROXY") +
           " is not served: write http://HOST:PORT");
  proxy.host = place->host;
  proxy.port = place->port;
  return proxy;
}

}  // namespace pm::hub
