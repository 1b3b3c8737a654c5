// Names and places: hf://ORG/NAME, URLs, who may see the token, which proxy stands between. Pure.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pm::hub {

/// A model on the hub. `id` is ORG/NAME, or NAME alone for the oldest models.
struct Repository {
  std::string id;
  std::string revision = "main";        ///< branch, tag, pull request or commit
};

/// True for text that begins with hf://.
bool names_repository(std::string_view text);
/// "hf://ORG/NAME" or "hf://ORG/NAME@REVISION"; `revision`, when not empty, stands instead of main. Throws Error{Usage, "Usage"}.
Repository repository_of(const std::string& text, const std::string& revision = "");

struct Url {
  bool tls = true;
  std::string host;                     ///< a name or an address, without brackets
  int port = 443;
  std::string target;                   ///< path and query, encoded, from '/'
  /// "https://host:port": what a token belongs to.
  std::string origin() const;
  std::string text() const { return origin() + target; }
};
/// http:// and https:// without a user. Nothing for any other text.
std::optional<Url> parse_url(std::string_view text);
/// Where a Location header leads from here: absolute, //host/path, or /path. Nothing for what is no such place, and from https to http.
std::optional<Url> redirect_from(const Url& here, const std::string& location);

/// Percent-encodes all but letters, digits and -._~; `slashes`: keeps '/'.
std::string encode(std::string_view text, bool slashes);
/// A full commit: 40 hexadecimal digits in lower case.
bool is_commit(std::string_view text);

/// Reads an environment variable; a parameter so that tests need not touch the real ones.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> real_environment(const std::string& name);

/// HF_ENDPOINT, else the public hub. Throws Error{Usage} when it is no URL.
Url endpoint_of(const Environment&);

struct Proxy { std::string host, user, password; int port = 3128; };
/// The HTTP proxy for a server: HTTPS_PROXY or HTTP_PROXY by the server's scheme, in either case of letters, unless NO_PROXY names the server: "*",
/// a name, a domain with all below it, an address, or a range of IPv4 addresses (10.0.0.0/8), each with a port if need be. Throws Error{Usage} for a proxy that is not http://.
std::optional<Proxy> proxy_for(const Url&, const Environment&);

}  // namespace pm::hub
