// SPDX-License-Identifier: Apache-2.0
// Makes authorities and certificates for tests.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace pm::k8s::test {

struct Identity {
  std::string cert, key;  ///< PEM
};

/// A self-signed authority.
Identity make_authority(const std::string& name);
/// A leaf that `authority` signs: CN `name`, subjectAltName as given ("DNS:localhost", "IP:127.0.0.1"; none: no
/// extension).
Identity issue(const Identity& authority, const std::string& name, const std::vector<std::string>& alternatives,
               bool expired = false);

}  // namespace pm::k8s::test
