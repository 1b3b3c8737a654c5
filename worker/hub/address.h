// SPDX-License-Identifier: Apache-2.0
// Parses hf://ORG/NAME names and URLs, and resolves redirects and proxies. It is pure: it does no I/O.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pm::hub {

/// A model on the hub. `id` is ORG/NAME, or NAME alone for the oldest models.
struct Repository {
  std::string id;
  std::string revision = "main";  ///< branch, tag, pull request or commit
};

/// Returns true for text that begins with hf://.
bool names_repository(std::string_view text);
/// "hf://ORG/NAME" or "hf://ORG/NAME@REVISION"; `revision`, when not empty, replaces main. Throws Error{Usage}.
Repository repository_of(const std::string& text, const std::string& revision = "");

struct Url {
  bool tls = true;
  std::string host;  ///< a name or an address, without brackets
  int port = 443;
  std::string target;  ///< path and query, encoded, from '/'
  /// Returns "https://host:port", the origin that a token is valid for.
  std::string origin() const;
  std::string text() const { return origin() + target; }
};
/// Parses http:// and https:// URLs without a user. Returns nothing for any other text.
std::optional<Url> parse_url(std::string_view text);
/// Resolves a Location header against `here`: absolute, //host/path, or /path. Returns nothing for other forms, and for
/// a redirect from https to http.
std::optional<Url> redirect_from(const Url& here, const std::string& location);

/// Returns true for a full commit: 40 hexadecimal digits in lower case.
bool is_commit(std::string_view text);

/// Reads an environment variable; a parameter so that tests need not touch the real ones.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> real_environment(const std::string& name);

/// Returns HF_ENDPOINT, else the public hub. Throws Error{Usage} when it is not a URL.
Url endpoint_of(const Environment&);

struct Proxy {
  std::string host, user, password;
  int port = 3128;
};
/// Returns the HTTP proxy for a server: HTTPS_PROXY or HTTP_PROXY by the server's scheme, in either case of letters,
/// unless NO_PROXY names the server: "*", a name, a domain with all below it, an address, or a range of IPv4 addresses
/// (10.0.0.0/8), each with an optional port. Throws Error{Usage} for a proxy that is not http://.
std::optional<Proxy> proxy_for(const Url&, const Environment&);

}  // namespace pm::hub
