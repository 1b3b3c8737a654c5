// SPDX-License-Identifier: Apache-2.0
// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them: adapters come and go without a restart.
#pragma once
#include <filesystem>

#include "worker/server/http/json_response.h"
#include "worker/server/http/operation.h"
#include "worker/server/serving/adapter_pool.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// What the routes may load, and where from.
struct AdapterUpdates {
  AdapterPool* pool = nullptr;      ///< outlives the server
  std::filesystem::path root = {};  ///< folders outside of it are refused; empty: the routes do not exist
};

/// Loads the folder "lora_path", below the root, under the name "lora_name". Throws ApiError 400 that names the field.
http::Response load_lora_adapter(const ServerContext&, const AdapterUpdates&, const RoutedRequest&);
/// Takes the adapter "lora_name" off; requests that run go on. Throws ApiError 404 where there is none.
http::Response unload_lora_adapter(const ServerContext&, const AdapterUpdates&, const RoutedRequest&);

Operation describe_load_lora_adapter();
Operation describe_unload_lora_adapter();

}  // namespace pm::server
