// SPDX-License-Identifier: Apache-2.0
// Fetches images that requests name by URL, from hosts that whoever starts the server has listed.
#pragma once
#include <string>
#include <vector>

#include "worker/hub/address.h"

namespace pm::cli {

/// Safe for concurrent use.
class MediaHosts {
 public:
  /// Hosts are HOST, for the usual ports of http and https, or HOST:PORT. Throws Error{Usage} for other texts.
  explicit MediaHosts(const std::vector<std::string>& hosts, hub::Environment environment = hub::real_environment);
  /// Returns what a URL names: up to 64 MiB within 60 s, behind up to 4 redirects to listed hosts. Throws
  /// Error{InvalidRequest} that says why there is nothing.
  std::string fetch(const std::string& url) const;

 private:
  bool lists(const hub::Url&) const;
  struct Host {
    std::string name;
    int port = 0;  ///< 0: the usual one
  };
  std::vector<Host> hosts_;
  const hub::Environment environment_;
};

}  // namespace pm::cli
