// SPDX-License-Identifier: Apache-2.0
// Tests what labels say of devices that several pods share, and what others leave of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/planning/shared_devices.h"

namespace pm::op {
namespace {

using k8s::Json;
using testing::HasSubstr;

constexpr int64_t gib = int64_t{1} << 30;

Json node(const Json& labels) { return {{"metadata", {{"name", "a"}, {"labels", labels}}}}; }

TEST(DeviceLabels, ADeviceIsWholeUnlessItsReplicasSayOtherwise) {
  const DeviceLabels none = device_labels(node(Json::object()), "nvidia.com/gpu");
  EXPECT_EQ(none.memory, 0);
  EXPECT_EQ(none.shared_by, 1);
  EXPECT_EQ(none.product, "");
  const DeviceLabels whole = device_labels(node({{"nvidia.com/gpu.memory", "81920"},
                                                 {"nvidia.com/gpu.replicas", "1"},
                                                 {"nvidia.com/gpu.sharing-strategy", "none"},
                                                 {"nvidia.com/gpu.product", "NVIDIA-L4"}}),
                                           "nvidia.com/gpu");
  EXPECT_EQ(whole.share(), 80 * gib);
  EXPECT_EQ(whole.product, "NVIDIA-L4");
}

TEST(DeviceLabels, TimeSlicesAndMpsShareTheMemoryAlsoUnderAnotherName) {
  for (const char* strategy : {"time-slicing", "mps", ""}) {
    const Json shared = node({{"nvidia.com/gpu.memory", "81920"},
                              {"nvidia.com/gpu.replicas", "4"},
                              {"nvidia.com/gpu.sharing-strategy", strategy},
                              {"nvidia.com/gpu.product", "NVIDIA-L4-SHARED"}});
    for (const char* resource : {"nvidia.com/gpu", "nvidia.com/gpu.shared", "example.com/slice"}) {
      const DeviceLabels labels = device_labels(shared, resource);
      EXPECT_EQ(labels.shared_by, 4) << strategy;
      EXPECT_EQ(labels.share(), 20 * gib) << strategy;
      EXPECT_EQ(labels.product, "NVIDIA-L4") << "a row of the product table";
    }
  }
}

TEST(DeviceLabels, AMigProfileHasLabelsOfItsOwn) {
  const Json mig = node({{"nvidia.com/gpu.memory", "81920"},
                         {"nvidia.com/mig-1g.10gb.memory", "9856"},
                         {"nvidia.com/mig-1g.10gb.replicas", "2"}});
  EXPECT_EQ(device_labels(mig, "nvidia.com/mig-1g.10gb").share(), int64_t{4928} << 20);
  EXPECT_EQ(device_labels(mig, "nvidia.com/mig-1g.10gb.shared").share(), int64_t{4928} << 20);
  EXPECT_EQ(device_labels(mig, "nvidia.com/mig-2g.20gb").memory, 0);
}

TEST(DeviceLabels, LabelsThatAreNoPositiveNumbersAreNotRead) {
  for (const char* text : {"", "0", "-4", "four", "1e3", "99999999999999999999", "9223372036854775807"}) {
    const DeviceLabels labels =
        device_labels(node({{"nvidia.com/gpu.memory", text}, {"nvidia.com/gpu.replicas", text}}), "nvidia.com/gpu");
    EXPECT_EQ(labels.memory, 0) << text;
    EXPECT_EQ(labels.shared_by, 1) << text;
  }
}

DeviceOffer offer(int64_t devices, std::vector<int64_t> held, int pods = 4) {
  return {.node = "a", .labels = {.memory = 80 * gib, .shared_by = pods}, .devices = devices, .held = std::move(held)};
}

TEST(LeftOfDevice, TheDeviceWithTheFewestRanksIsHandedOut) {
  EXPECT_EQ(left_of_device(offer(1, {})), 80 * gib);
  EXPECT_EQ(left_of_device(offer(1, {60 * gib})), 20 * gib);
  EXPECT_EQ(left_of_device(offer(2, {60 * gib})), 80 * gib) << "the other device is free";
  EXPECT_EQ(left_of_device(offer(2, {10 * gib, 60 * gib, 5 * gib})), 20 * gib)
      << "one rank beside, the largest at worst";
  EXPECT_EQ(left_of_device(offer(1, {60 * gib, 60 * gib})), 0) << "never less than nothing";
  EXPECT_EQ(left_of_device(offer(0, {60 * gib})), 20 * gib) << "a plugin that offers fewer shares than one device has";
}

TEST(RefuseShares, ARankThatFitsBesideTheOthersIsNotRefused) {
  EXPECT_EQ(refuse_shares({}, 1, 80 * gib), "");
  EXPECT_EQ(refuse_shares({offer(1, {60 * gib})}, 1, 20 * gib), "");
  EXPECT_EQ(refuse_shares({offer(1, {60 * gib}), offer(1, {})}, 1, 80 * gib), "") << "another node has room";
  EXPECT_EQ(refuse_shares({offer(1, {60 * gib}, 1)}, 8, 80 * gib), "") << "devices that are not shared";
  DeviceOffer unknown = offer(1, {60 * gib});
  unknown.labels.memory = 0;
  EXPECT_EQ(refuse_shares({unknown}, 1, 70 * gib), "") << "no label says how large the device is";
}

TEST(RefuseShares, TheRefusalNamesWhatIsLeftAndWhere) {
  const std::string why = refuse_shares({offer(1, {70 * gib}), offer(1, {60 * gib})}, 1, 21 * gib);
  EXPECT_THAT(why, HasSubstr("a rank uses 21.0 GiB"));
  EXPECT_THAT(why, HasSubstr("leave 20.0 GiB of 80.0 GiB of a shared device on a"));
}

TEST(RefuseShares, RanksOfOnePodAreRefusedWhereADeviceIsShared) {
  EXPECT_THAT(refuse_shares({offer(2, {}, 1), offer(2, {})}, 2, gib), HasSubstr("set devices.count to 1"));
}

}  // namespace
}  // namespace pm::op
