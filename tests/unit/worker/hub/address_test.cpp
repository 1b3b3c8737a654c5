// SPDX-License-Identifier: Apache-2.0
// Tests names, URLs, redirects and proxies of the hub.
#include <gtest/gtest.h>

#include <map>

#include "worker/base/error.h"
#include "worker/hub/address.h"

namespace pm::hub {
namespace {

Environment environment(std::map<std::string, std::string> values) {
  return [values](const std::string& name) {
    return values.contains(name) ? std::optional(values.at(name)) : std::nullopt;
  };
}

TEST(Repository, NamesAreReadAsTheHubWritesThem) {
  EXPECT_EQ(repository_of("hf://org/name").id, "org/name");
  EXPECT_EQ(repository_of("hf://org/name").revision, "main");
  EXPECT_EQ(repository_of("hf://gpt2").id, "gpt2");
  EXPECT_EQ(repository_of("hf://org/na.me-1_x@refs/pr/1").revision, "refs/pr/1");
  EXPECT_EQ(repository_of("hf://org/name", "v2").revision, "v2");
  EXPECT_EQ(repository_of("hf://org/name@v2", "v2").revision, "v2");
  EXPECT_THROW(repository_of("hf://org/name@v1", "v2"), Error);
  for (const char* bad :
       {"hf://", "hf://a/b/c", "hf:///a", "hf://a/", "hf://../a", "hf://a/..", "hf://a--b/c", "hf://-a/b", "hf://a/b.",
        "hf://a b/c", "hf://a/b@", "hf://a/b@../c", "hf://a/b@x y", "hf://a/b\n"}) {
    EXPECT_THROW(repository_of(bad), Error) << bad;
  }
}

TEST(Url, AnOriginIsSchemeHostAndPort) {
  EXPECT_EQ(parse_url("HTTPS://Hub.Example.com/a?b#c")->text(), "https://hub.example.com/a?b");
  EXPECT_EQ(parse_url("https://a:443")->origin(), parse_url("https://a/")->origin());
  EXPECT_NE(parse_url("https://a:444")->origin(), parse_url("https://a")->origin());
  EXPECT_NE(parse_url("http://a")->origin(), parse_url("https://a")->origin());
  EXPECT_EQ(parse_url("http://[::1]:80/x")->text(), "http://[::1]/x");
  EXPECT_EQ(parse_url("http://a?b")->target, "/?b");
  for (const char* bad : {"", "a", "ftp://a", "http://", "http://:80", "http://a:0", "http://a:99999", "http://a:x",
                          "http://user@a/", "http://a b/", "http://a\r\nX: y/", "http://[a]/", "http://[::1"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
}

TEST(Url, RedirectsLeadElsewhereButNeverFromHttpsToHttp) {
  const Url here = *parse_url("https://hub/a/b");
  EXPECT_EQ(redirect_from(here, "/c")->text(), "https://hub/c");
  EXPECT_EQ(redirect_from(here, "//cdn/c")->text(), "https://cdn/c");
  EXPECT_EQ(redirect_from(here, "https://cdn/c")->origin(), "https://cdn");
  EXPECT_FALSE(redirect_from(here, "http://hub/c"));
  EXPECT_TRUE(redirect_from(*parse_url("http://hub/"), "https://hub/c"));
  for (const char* bad : {"", "c", "file:///etc/passwd", "https://user:pass@hub/", "/a b"})
    EXPECT_FALSE(redirect_from(here, bad)) << bad;
}

TEST(Url, EncodingKeepsSlashesWhereTheyArePartOfThePath) {}

TEST(Endpoint, IsThePublicHubUnlessHfEndpointSaysElse) {
  EXPECT_EQ(endpoint_of(environment({})).origin(), "https://huggingface.co");
  EXPECT_EQ(endpoint_of(environment({{"HF_ENDPOINT", "http://mirror:8080/hub/"}})).text(), "http://mirror:8080/hub");
  EXPECT_THROW(endpoint_of(environment({{"HF_ENDPOINT", "mirror"}})), Error);
}

TEST(Proxy, FollowsTheSchemeOfTheServerAndItsExceptions) {
  const auto proxies = [](const char* exceptions) {
    return environment({{"https_proxy", "http://p:1"}, {"HTTP_PROXY", "q:2"}, {"NO_PROXY", exceptions}});
  };
  const Url secure = *parse_url("https://cdn.example.com/"), plain = *parse_url("http://10.1.2.3:8080/");
  EXPECT_EQ(proxy_for(secure, proxies(""))->host, "p");
  EXPECT_EQ(proxy_for(plain, proxies(""))->port, 2);
  for (const char* all :
       {"*", "example.com", ".example.com", "*.example.com", "x, CDN.example.com", "cdn.example.com:443"})
    EXPECT_FALSE(proxy_for(secure, proxies(all))) << all;
  for (const char* none : {"ample.com", "cdn.example.com:80", "example.com.org", ","})
    EXPECT_TRUE(proxy_for(secure, proxies(none))) << none;
  for (const char* all : {"10.1.2.3", "10.0.0.0/8", "0.0.0.0/0", "10.1.2.3:8080"})
    EXPECT_FALSE(proxy_for(plain, proxies(all))) << all;
  for (const char* none : {"10.2.0.0/16", "10.0.0.0/x", "10.0.0.0/99"})
    EXPECT_TRUE(proxy_for(plain, proxies(none))) << none;
  const auto user = proxy_for(secure, environment({{"HTTPS_PROXY", "http://us%40er:p%3Aw@p:1"}}));
  EXPECT_EQ(user->user, "us@er");
  EXPECT_EQ(user->password, "p:w");
  EXPECT_THROW(proxy_for(secure, environment({{"https_proxy", "socks5://p:1"}})), Error);
}

}  // namespace
}  // namespace pm::hub
