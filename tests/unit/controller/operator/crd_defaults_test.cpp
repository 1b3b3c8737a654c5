// SPDX-License-Identifier: Apache-2.0
// Tests that the CRD and the typed spec have the same defaults.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>

#include "controller/operator/api/spec.h"
#include "tests/unit/support/repository.h"

namespace pm::op::test {
namespace {

using Defaults = std::map<std::string, std::string>;  // path of a field to its default, as YAML writes it

void collect(const YAML::Node& schema, const std::string& path, Defaults& all) {
  if (const YAML::Node value = schema["default"]; value && value.IsScalar()) all[path] = value.Scalar();
  for (const auto& property : schema["properties"]) collect(property.second, path + "." + property.first.Scalar(), all);
  if (schema["items"]) collect(schema["items"], path + "[]", all);
}

Defaults crd_defaults() {
  Defaults all;
  const YAML::Node crd = YAML::LoadFile(pm::test::repository() / "crds/parallelmodel.yaml");
  collect(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec", all);
  return all;
}

Defaults spec_defaults(const Spec& spec, const HubSource& hub) {
  const auto seconds = [](std::chrono::seconds value) { return std::to_string(value.count()); };
  return {{"spec.model.tokenSecretRef.key", hub.token_key},
          {"spec.serving.maxConcurrency", std::to_string(spec.serving.max_concurrency)},
          {"spec.serving.maxQueue", std::to_string(spec.serving.max_queue)},
          {"spec.replicas", std::to_string(spec.replicas)},
          {"spec.scheduling.scheduleTimeoutSeconds", seconds(spec.scheduling.timeout)},
          {"spec.service.port", std::to_string(spec.service.port)},
          {"spec.service.type", spec.service.type},
          {"spec.update.maxSurge", std::to_string(spec.update.max_surge)},
          {"spec.update.maxUnavailable", std::to_string(spec.update.max_unavailable)},
          {"spec.update.surgeTimeoutSeconds", seconds(spec.update.surge_timeout)},
          {"spec.update.drainSeconds", seconds(spec.update.drain)},
          {"spec.failure.maxRestarts", std::to_string(spec.failure.max_restarts)},
          {"spec.failure.windowSeconds", seconds(spec.failure.window)},
          {"spec.failure.backoffBaseSeconds", seconds(spec.failure.backoff_base)},
          {"spec.failure.backoffMaxSeconds", seconds(spec.failure.backoff_max)},
          {"spec.failure.hangTimeoutSeconds", seconds(spec.failure.hang_timeout)},
          {"spec.failure.startSeconds", seconds(spec.failure.start)},
          {"spec.metrics.podMonitor", spec.pod_monitor ? "true" : "false"},
          {"spec.router.inferencePool.endpointPicker.port", std::to_string(EndpointPicker{}.port)},
          {"spec.router.inferencePool.endpointPicker.failureMode", EndpointPicker{}.failure_mode},
          {"spec.router.httpRoute.weight", std::to_string(Route{}.weight)}};
}

TEST(Defaults, OfTheCrdAreThoseOfADefaultConstructedSpec) {
  EXPECT_EQ(crd_defaults(), spec_defaults(Spec{}, HubSource{}));
}

TEST(Defaults, AnObjectThatTheApiServerDidNotDefaultGetsThem) {
  const Spec spec = parse_spec({{"spec", {{"model", {{"source", "hf://org/name"}}}, {"devices", {{"count", 2}}}}}});
  EXPECT_EQ(spec_defaults(spec, *spec.source.hub), crd_defaults());
}

}  // namespace
}  // namespace pm::op::test
