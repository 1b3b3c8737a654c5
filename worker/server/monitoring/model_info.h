// SPDX-License-Identifier: Apache-2.0
// OpenAPI descriptions of the routes about the server itself: model information, health, metrics, plan and memory.
#pragma once
#include "worker/server/http/operation.h"

namespace pm::server {

Operation describe_card();
Operation describe_models();
Operation describe_model();
Operation describe_version();
Operation describe_health();
Operation describe_metrics();
Operation describe_plan();
Operation describe_memory();
Operation describe_document();
Operation describe_page();

}  // namespace pm::server
