// GET over HTTP and HTTPS. The one place of the worker that asks servers through the HTTP library.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "worker/hub/address.h"

namespace pm::hub {

struct Reply {
  int status = 0;                               ///< 0: no answer came
  std::map<std::string, std::string> headers;   ///< names in lower case, of repeated ones the first
  std::string failure;                          ///< why there is no answer, or no whole one
  bool ended_early = false;                     ///< by the caller
  /// A header's value, "" when absent.
  std::string header(const std::string& name) const;
};

/// Keeps a connection to each server. Certificates are verified against the system's authorities (or SSL_CERT_FILE), names by subjectAltName only.
/// One request at a time; not for several threads.
class Transport {
 public:
  explicit Transport(Environment environment = real_environment);
  ~Transport();

  /// Follows no redirect. `wanted` sees status and headers and says whether the body is read; `take` gets it piece by piece and may end it.
  /// 10 s to connect; 30 s of silence end it. Throws Error{Usage} for a proxy of no use.
  Reply get(const Url&, const std::map<std::string, std::string>& headers, const std::function<bool(const Reply&)>& wanted,
            const std::function<bool(std::string_view)>& take);

 private:
  class Server;
  const Environment environment_;
  std::map<std::string, std::unique_ptr<Server>> servers_;   ///< by origin
};

}  // namespace pm::hub
