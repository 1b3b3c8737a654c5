// What GET /openapi.json says of the routes that speak of the server itself.
#pragma once
#include "worker/server/operation.h"

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
