// SPDX-License-Identifier: Apache-2.0
// An image that a message names.
#pragma once
#include <string>

namespace pm::server {

struct ImageReference {
  std::string url;    ///< data: or file:
  std::string field;  ///< of the request, for messages
};

}  // namespace pm::server
