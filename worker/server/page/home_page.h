// SPDX-License-Identifier: Apache-2.0
// The page that browsers get at /: the plan, its memory, the load now, and a field to ask the model.
#pragma once
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/membership/status_table.h"
#include "worker/engine/engine.h"
#include "worker/server/http/http.h"
#include "worker/server/http/router.h"
#include "worker/server/serving/capabilities.h"

namespace pm::server {

struct PageContext {
  const std::string& model;
  const Capabilities& capabilities;
  const Plan& plan;
  comm::StatusTable* status_table;  ///< nullptr: nothing is measured
  engine::Statistics statistics;
  std::string refusal;  ///< why requests are refused now, as an error's code; "" when serving
  const std::vector<Router::Route>& routes;
};

/// Returns the page. It can be read without JavaScript; its script, which asks the model and renews the figures every
/// two seconds, and its style are part of it, and its policy (Content-Security-Policy) allows nothing from elsewhere.
http::Response home_page(const PageContext&);

/// Returns the page, of status 401, that asks for an API key. It replaces itself by the page that a key opens, whose
/// requests then have the key. The key is stored nowhere.
http::Response key_page();

/// Returns whether the client of the request wants HTML rather than JSON, by the Accept header.
bool wants_page(const http::Request&);

}  // namespace pm::server
