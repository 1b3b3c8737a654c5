// SPDX-License-Identifier: Apache-2.0
#include "controller/core/object.h"

#include <gtest/gtest.h>

using namespace pm::k8s;

namespace {
const Json pod = Json::parse(
    R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"12",
  "labels":{"x":"y"},"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"a/b~c":"slash"},
  "ownerReferences":[{"apiVersion":"v1","kind":"Other","name":"o","uid":"1"},
                     {"apiVersion":"parallelmodel.dev/v1alpha1","kind":"ParallelModel","name":"m","uid":"2","controller":true}]},
  "spec":{"containers":[{"image":"i"}]}})");
}  // namespace

TEST(Object, ReadsMetadata) {
  EXPECT_EQ(key_of(pod), (Key{"n", "a"}));
  EXPECT_EQ(to_string(key_of(pod)), "n/a");
  EXPECT_EQ(uid_of(pod), "u");
  EXPECT_EQ(version_of(pod), "12");
  EXPECT_EQ(label_of(pod, "x"), "y");
  EXPECT_EQ(label_of(pod, "z"), "");
  EXPECT_TRUE(being_deleted(pod));
  EXPECT_EQ(string_at(pod, "/spec/containers/0/image"), "i");
  EXPECT_EQ(string_at(pod, "/spec/containers/1/image"), "");
  EXPECT_EQ(string_at(pod, "/metadata/annotations/a~1b~0c"), "slash");
}

TEST(Object, MalformedObjectsAnswerEmptyAndDoNotThrow) {
  for (const char* text :
       {"null", "[]", "1", "{}", R"({"metadata":3})", R"({"metadata":{"name":1,"labels":[],"ownerReferences":{}}})",
        R"({"metadata":{"ownerReferences":[1,{"controller":"yes"}]}})"}) {
    const Json object = Json::parse(text);
    EXPECT_EQ(key_of(object), Key{}) << text;
    EXPECT_EQ(label_of(object, "x"), "") << text;
    EXPECT_FALSE(controller_of(object)) << text;
    EXPECT_FALSE(being_deleted(object)) << text;
    EXPECT_EQ(string_at(object, "/metadata/name/x"), "") << text;
  }
}

TEST(Object, TheControllerIsTheReferenceMarkedSo) {
  EXPECT_EQ(controller_of(pod)->name, "m");
  const Resource models{"parallelmodel.dev", "v1alpha1", "parallelmodels", "ParallelModel"};
  const Json reference = owner_reference(models, {{"metadata", {{"name", "m"}, {"uid", "2"}}}});
  EXPECT_EQ(reference["apiVersion"], "parallelmodel.dev/v1alpha1");
  EXPECT_EQ(reference["blockOwnerDeletion"], true);
  EXPECT_EQ(controller_of({{"metadata", {{"ownerReferences", {reference}}}}}), controller_of(pod));
  EXPECT_THROW(owner_reference(models, {{"metadata", {{"name", "m"}}}}), std::invalid_argument);
}

TEST(Object, ResourceVersionsCompareAsNumbersOfAnyLength) {
  EXPECT_EQ(compare_versions("9", "10"), -1);
  EXPECT_EQ(compare_versions("10", "10"), 0);
  EXPECT_EQ(compare_versions("123456789012345678901234567890", "99999999999999999999"), 1);
  EXPECT_FALSE(compare_versions("", "1"));
  EXPECT_FALSE(compare_versions("a1", "1"));
  EXPECT_FALSE(compare_versions("01", "1"));
}
