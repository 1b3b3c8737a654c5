// SPDX-License-Identifier: Apache-2.0
#include "controller/core/request.h"

#include <gtest/gtest.h>

using namespace pm::k8s;

namespace {
Request get(Resource resource, std::string ns, std::string name) { return {Verb::Get, resource, ns, name}; }
}  // namespace

TEST(Request, PathsOfCoreAndGroupResources) {
  EXPECT_EQ(path_of(get(pods_resource, "n", "a")), "/api/v1/namespaces/n/pods/a");
  EXPECT_EQ(path_of(get(pod_disruption_budgets_resource, "n", "a")),
            "/apis/policy/v1/namespaces/n/poddisruptionbudgets/a");
  EXPECT_EQ(path_of(get(nodes_resource, "", "a")), "/api/v1/nodes/a");
  EXPECT_EQ(path_of({Verb::List, pods_resource}), "/api/v1/pods");
  EXPECT_EQ(path_of({Verb::List, pods_resource, "n"}), "/api/v1/namespaces/n/pods");
}

TEST(Request, WritesNameTheFieldManager) {
  EXPECT_EQ(path_of({Verb::Create, pods_resource, "n", "a"}),
            "/api/v1/namespaces/n/pods?fieldManager=parallelmodel-controller");
  Request apply{Verb::Apply, services_resource, "n", "a"};
  apply.force = true;
  EXPECT_EQ(path_of(apply), "/api/v1/namespaces/n/services/a?fieldManager=parallelmodel-controller&force=true");
  Request status{Verb::MergePatch, services_resource, "n", "a", "status"};
  EXPECT_EQ(path_of(status), "/api/v1/namespaces/n/services/a/status?fieldManager=parallelmodel-controller");
}

TEST(Request, QueriesAreEncodedWhole) {
  Request list{Verb::List, pods_resource};
  list.query = {{"labelSelector", "a/b=c,d!=e f&g%"}, {"limit", "500"}};
  EXPECT_EQ(path_of(list), "/api/v1/pods?labelSelector=a%2Fb%3Dc%2Cd%21%3De%20f%26g%25&limit=500");
}

TEST(Request, NamesThatWouldChangeThePathAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "a%2fb"})
    EXPECT_THROW(path_of(get(pods_resource, "n", name)), std::invalid_argument) << name;
  EXPECT_THROW(path_of(get(pods_resource, "", "a")), std::invalid_argument);
  EXPECT_THROW(path_of(get(pods_resource, "../x", "a")), std::invalid_argument);
  EXPECT_EQ(path_of(get(pods_resource, "n", "system:a?b")), "/api/v1/namespaces/n/pods/system%3Aa%3Fb");
}
