// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/served_names.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/http/json_body.h"
#include "worker/server/serving/adapter_pool.h"

namespace pm::server {

std::vector<std::string> ServedNames::with_adapters() const {
  std::vector<std::string> all = names_;
  if (adapters_)
    for (const auto& adapter : adapters_->all()) all.push_back(adapter->name);
  return all;
}

std::string ServedNames::in_replies(const std::string& requested) const {
  return adapters_ && adapters_->find(requested) ? requested : first();
}

bool ServedNames::has(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void ServedNames::check(const std::string& requested) const { adapter(requested); }

std::shared_ptr<const engine::Adapter> ServedNames::adapter(const std::string& requested) const {
  if (has(requested)) return nullptr;
  if (auto found = adapters_ ? adapters_->find(requested) : nullptr) return found;
  std::string known;
  for (const std::string& name : with_adapters()) known += (known.empty() ? "" : ", ") + json_excerpt(name);
  throw ApiError(404, "model_not_found", "there is no model " + json_excerpt(requested) + "; this server has: " + known,
                 "model");
}

}  // namespace pm::server
