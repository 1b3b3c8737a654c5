// SPDX-License-Identifier: Apache-2.0
#include "worker/server/page/home_page.h"

#include <algorithm>

#include "base/base64.h"
#include "base/byte_size.h"
#include "base/digest.h"
#include "base/markup.h"
#include "planner/plan_svg.h"
#include "worker/server/monitoring/memory_report.h"
#include "worker/server/page/assets.h"

namespace pm::server {
namespace {

using base::escape_markup;
using nlohmann::json;

std::vector<std::optional<Memory>> measured_memory(const PageContext& context) {
  std::vector<std::optional<Memory>> all(context.plan.ranks.size());
  for (const RankPlan& rank : context.plan.ranks) {
    if (context.status_table && rank.rank < context.status_table->size())
      all[static_cast<size_t>(rank.rank)] = measured(context.status_table->rank(rank.rank));
  }
  return all;
}

std::string state_text(const PageContext& context) {
  if (context.refusal.empty()) return "ready";
  std::string text = context.refusal;
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string figure(const std::string& name, const std::string& value) {
  return "<div><dt>" + escape_markup(name) + "</dt><dd>" + escape_markup(value) + "</dd></div>";
}

/// Returns the figures of this moment.
std::string load_figures(const engine::Statistics& now) {
  std::string figures = "<dl id=\"now\">";
  for (const auto& [name, value] : {std::pair{"requests running", now.running},
                                    {"requests waiting", now.waiting},
                                    {"requests finished", now.finished},
                                    {"requests failed", now.failed},
                                    {"prompt tokens", now.prompt_tokens},
                                    {"generated tokens", now.generation_tokens}})
    figures += figure(name, std::to_string(value));
  if (now.kv_blocks > 0)
    figures += figure("KV blocks used", std::to_string(now.kv_blocks_used) + " of " + std::to_string(now.kv_blocks));
  return figures + "</dl>";
}

std::string rejected_table(const Plan& plan) {
  if (plan.rejected.empty()) return "";
  std::string table = "<details><summary>What the planner rejected</summary><table>";
  for (const Rejected& one : plan.rejected)
    table += "<tr><th scope=\"row\">" + escape_markup(one.strategy) + "</th><td>" + escape_markup(one.reason) +
             "</td><td>" + escape_markup(one.message) + "</td></tr>";
  return table + "</table></details>";
}

/// Returns the example of a route as the text of its body. Generating routes stream, so that the answer is seen as it
/// comes.
std::string example_of(const Router::Route& route) {
  json example = route.operation.example;
  const bool streams = route.path == "/v1/completions" || route.path == "/v1/chat/completions";
  if (streams) example["stream"] = true;
  return example.dump(2, ' ', false, json::error_handler_t::replace);
}

/// Returns a form with the routes that this model serves and take a JSON body; "" when there is none. It is hidden
/// until the script shows it, for it does nothing without.
std::string ask_form(const PageContext& context) {
  std::string options;
  for (const Router::Route& route : context.routes) {
    if (route.method != "POST" || route.operation.example.is_null() || !context.capabilities.serves(route.path))
      continue;
    options += "<option value=\"" + escape_markup(route.path) + "\" data-example=\"" +
               escape_markup(example_of(route)) + "\">" + escape_markup(route.path) + "</option>";
  }
  if (options.empty()) return "";
  return "<h2>Ask</h2><noscript><p>Asking from this page needs JavaScript; <a href=\"docs\">the API document</a> has "
         "the "
         "routes with examples.</p></noscript><form id=\"ask\" hidden><p><label for=\"route\">Route</label><select "
         "id=\"route\">" +
         options +
         "</select></p><p><label for=\"body\">Body</label><textarea id=\"body\" spellcheck=\"false\" "
         "rows=\"6\"></textarea>"
         "</p><button id=\"send\">Send</button> Ctrl+Enter sends too.<output id=\"answer\" for=\"body\" "
         "aria-live=\"polite\""
         "></output></form>";
}

/// Returns the policy that allows this page's own style and script, and requests to its own server.
std::string content_policy() {
  const std::string script = base::encode_base64(base::sha256(page_script));
  return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + script +
         "'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

/// Returns a page with style, script and policy. `title` and `content` are markup.
http::Response page_of(const std::string& title, const std::string& content) {
  http::Response response;
  response.content_type = "text/html; charset=utf-8";
  response.headers = {{"Content-Security-Policy", content_policy()}, {"Cache-Control", "no-store"}, {"Vary", "Accept"}};
  response.body =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>" +
      title + "</title><style>" + std::string(page_style) + "</style></head><body><h1>" + title + "</h1>" + content +
      "<script>" + std::string(page_script) + "</script></body></html>\n";
  return response;
}

}  // namespace

http::Response home_page(const PageContext& context) {
  const std::string model = escape_markup(context.model);
  return page_of(model,
                 "<p>" + escape_markup(context.capabilities.architecture) + ", " +
                     std::string(to_string(context.capabilities.task)) + ": <strong id=\"state\" role=\"status\">" +
                     escape_markup(state_text(context)) +
                     "</strong></p><p><a href=\"docs\">API</a> <a href=\"plan\">plan</a> <a "
                     "href=\"memory?format=text\">memory</a> <a href=\"metrics\">metrics</a></p><h2>Plan</h2><p>" +
                     escape_markup(context.plan.reason) + ": " + escape_markup(context.plan.message) +
                     "</p><div class=\"plan\" id=\"drawing\">" + plan_svg(context.plan, measured_memory(context)) +
                     "</div>" + rejected_table(context.plan) + "<h2>Now</h2>" + load_figures(context.statistics) +
                     ask_form(context));
}

http::Response key_page() {
  http::Response response = page_of(
      "API key",
      "<noscript><p>Entering a key here needs JavaScript; programs send it as \"Authorization: Bearer KEY\".</p>"
      "</noscript><form id=\"unlock\"><p><label for=\"key\">This server answers with an API key only.</label> <input "
      "id=\"key\" type=\"password\" autocomplete=\"off\" required autofocus></p><button>Open</button><output "
      "id=\"refusal\" for=\"key\" role=\"alert\"></output></form>");
  response.status = 401;
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

bool wants_page(const http::Request& request) {
  return request.header("accept").find("text/html") != std::string::npos;
}

}  // namespace pm::server
