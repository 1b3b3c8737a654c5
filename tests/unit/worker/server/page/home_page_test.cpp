// SPDX-License-Identifier: Apache-2.0
// Tests the page at /: what it shows without a script, who gets it, and what its policy allows.
#include "worker/server/page/home_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/digest.h"
#include "tests/unit/worker/server/support/task_test_server.h"
#include "worker/server/page/assets.h"

namespace pm::test {
namespace {

using testing::HasSubstr;
using testing::Not;

const httplib::Headers browser{{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}};

TEST(HomePage, BrowsersGetItAndOtherClientsGetJson) {
  TaskTestServer tasked(capabilities_of("classify"));
  const auto page = tasked.client().Get("/", browser);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page->get_header_value("Vary"), "Accept");
  for (const char* accept : {"*/*", "application/json"}) {
    const auto card = tasked.client().Get("/", {{"Accept", accept}});
    EXPECT_EQ(card->get_header_value("Content-Type"), "application/json") << accept;
    EXPECT_EQ(json::parse(card->body)["task"], "classify");
  }
  EXPECT_EQ(tasked.client().Get("/")->get_header_value("Content-Type"), "application/json");
}

TEST(HomePage, CanBeReadWithoutItsScript) {
  TaskTestServer tasked(capabilities_of("classify"));
  const std::string page = tasked.client().Get("/", browser)->body;
  for (const char* part : {"<svg ", ">rank 0<", ">planned ", ">requests running<", ">requests waiting<", "<noscript>",
                           "href=\"docs\"", "href=\"plan\"", ">ready<"})
    EXPECT_THAT(page, HasSubstr(part));
}

TEST(HomePage, OffersTheRoutesThatTheModelServes) {
  TaskTestServer tasked(capabilities_of("classify"));
  const std::string page = tasked.client().Get("/", browser)->body;
  EXPECT_THAT(page, HasSubstr("<option value=\"/classify\" data-example=\"{"));
  EXPECT_THAT(page, Not(HasSubstr("<option value=\"/v1/completions\"")));
  TaskTestServer generating(capabilities_of("generate"));
  EXPECT_THAT(generating.client().Get("/", browser)->body, HasSubstr("&quot;stream&quot;: true"));
}

TEST(HomePage, ItsPolicyAllowsItsOwnScriptAndNothingElse) {
  TaskTestServer tasked(capabilities_of("classify"));
  const auto page = tasked.client().Get("/", browser);
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-" + base::encode_base64(base::sha256(server::page_script)) + "'"));
  EXPECT_THAT(page->body, HasSubstr("<script>" + std::string(server::page_script) + "</script>"));
  for (const char* outside : {"https://", " src=", "@import", "url("}) EXPECT_THAT(page->body, Not(HasSubstr(outside)));
}

TEST(HomePage, TheNameOfAModelCannotBecomeMarkup) {
  TaskTestServer tasked(capabilities_of("classify"), true,
                        [](server::ApiOptions& options) { options.names = {"<img src=x onerror=alert(1)>"}; });
  const std::string page = tasked.client().Get("/", browser)->body;
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("<h1>&lt;img src=x onerror=alert(1)&gt;</h1>"));
}

TEST(HomePage, CanBeTurnedOff) {
  TaskTestServer tasked(capabilities_of("classify"), true, [](server::ApiOptions& options) { options.page = false; });
  EXPECT_EQ(tasked.client().Get("/", browser)->get_header_value("Content-Type"), "application/json");
}

}  // namespace
}  // namespace pm::test
