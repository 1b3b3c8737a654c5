// SPDX-License-Identifier: Apache-2.0
// Tests fields of the spec that add parts to pods: models in images, queues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/object_text.h"
#include "controller/operator/children/pod_parts.h"
#include "tests/unit/controller/operator/built_pods.h"

namespace pm::op::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(PodOptions, AnImageIsMountedAsTheModel) {
  auto model = owned_model();
  const std::string reference = "registry.example.com/models@sha256:" + std::string(64, 'a');
  model["spec"]["model"] = {{"source", "oci://" + reference}, {"path", "gpt2"}};
  model["spec"]["worker"]["imagePullSecrets"] = Json::array({{{"name", "pull"}}});
  const Made made(model);
  const Json volume{{"name", "model"}, {"image", {{"reference", reference}, {"pullPolicy", "IfNotPresent"}}}};
  for (const Json& pod : {made.pod(), inspect_pod(made.owner, made.spec, made.worker, std::nullopt)}) {
    EXPECT_THAT(pod["spec"]["volumes"].get<std::vector<Json>>(), Contains(volume));
    EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"].get<std::vector<Json>>(),
                Contains(Json{{"name", "model"}, {"mountPath", "/model"}, {"readOnly", true}}));
    EXPECT_THAT(pod["spec"]["containers"][0]["args"].dump(), HasSubstr("/model/gpt2"));
    EXPECT_EQ(pod["spec"]["imagePullSecrets"][0]["name"], "pull");
    EXPECT_THAT(pod.dump(), Not(HasSubstr("persistentVolumeClaim")));
  }
  model["spec"]["model"]["source"] = "oci://registry.example.com/models@sha256:" + std::string(64, 'b');
  EXPECT_NE(source_hash(made.spec, made.owner, ""), source_hash(parse_spec(model), made.owner, ""));
}

TEST(PodOptions, ReplicasInAQueueAreGroupsOfPodsThatItAdmitsTogether) {
  auto model = owned_model();
  const Json without = Made(model).pod();
  for (const char* map : {"labels", "annotations"})
    for (const auto& [key, value] : without["metadata"][map].items()) EXPECT_FALSE(key.starts_with("kueue")) << key;
  EXPECT_FALSE(without["spec"].contains("schedulingGates"));
  model["spec"]["scheduling"] = {{"queueName", "team-a"}, {"queuePriorityClassName", "high"}};
  model["spec"]["worker"]["labels"] = {{"kueue.x-k8s.io/queue-name", "of-the-user"}};
  const Made made(model);
  const Json pod = made.pod(), inspects = inspect_pod(made.owner, made.spec, made.worker, std::nullopt);
  const Json& labels = pod["metadata"]["labels"];
  EXPECT_EQ(labels["kueue.x-k8s.io/queue-name"], "team-a");
  EXPECT_EQ(labels["kueue.x-k8s.io/priority-class"], "high");
  EXPECT_EQ(labels["kueue.x-k8s.io/managed"], "true");
  EXPECT_EQ(labels["kueue.x-k8s.io/pod-group-name"], group_name("m", 0, 1));
  EXPECT_EQ(annotation_of(pod, "kueue.x-k8s.io/pod-group-total-count"), std::to_string(made.layout.nodes()));
  EXPECT_EQ(annotation_of(pod, "kueue.x-k8s.io/pod-group-serving"), "true");
  EXPECT_EQ(annotation_of(pod, "kueue.x-k8s.io/pod-suspending-parent"), "parallelmodel");
  EXPECT_EQ(pod["spec"]["schedulingGates"], Json::array({{{"name", "kueue.x-k8s.io/admission"}}}));
  EXPECT_FALSE(inspects["spec"].contains("schedulingGates")) << "an inspection needs no quota";
  EXPECT_FALSE(inspects["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"));
}

}  // namespace
}  // namespace pm::op::test
