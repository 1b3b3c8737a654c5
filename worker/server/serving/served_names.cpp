// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/served_names.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/http/json_body.h"

namespace pm::server {

bool ServedNames::has(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void ServedNames::check(const std::string& requested) const {
  if (has(requested)) return;
  std::string known;
  for (const std::string& name : names_) known += (known.empty() ? "" : ", ") + json_excerpt(name);
  throw ApiError(404, "model_not_found", "there is no model " + json_excerpt(requested) + "; this server has: " + known,
                 "model");
}

}  // namespace pm::server
