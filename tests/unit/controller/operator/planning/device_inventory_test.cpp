// SPDX-License-Identifier: Apache-2.0
// Tests how CEL selectors are read, and which devices of ResourceSlices the planner counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/planning/cel_terms.h"
#include "controller/operator/planning/hardware.h"
#include "tests/unit/controller/operator/simulator/fake_cluster.h"

namespace pm::op::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Property = DeviceTerm::Property;

constexpr int64_t gib = int64_t{1} << 30;

TEST(CelTerms, TheThreeKindsOfTermsAreRead) {
  EXPECT_THAT(read_terms(R"(device.driver == "gpu.nvidia.com")"),
              ElementsAre(DeviceTerm{Property::Driver, "", "", Comparison::Equal, "gpu.nvidia.com"}));
  EXPECT_THAT(read_terms(R"(device.attributes['gpu.nvidia.com'].type == 'gpu')"),
              ElementsAre(DeviceTerm{Property::Attribute, "gpu.nvidia.com", "type", Comparison::Equal, "gpu"}));
  EXPECT_THAT(read_terms(R"(device.attributes["a"].index == -3)"),
              ElementsAre(DeviceTerm{Property::Attribute, "a", "index", Comparison::Equal, int64_t{-3}}));
  EXPECT_THAT(read_terms(R"(device.attributes["a"].full == true)"),
              ElementsAre(DeviceTerm{Property::Attribute, "a", "full", Comparison::Equal, true}));
  EXPECT_THAT(read_terms(R"(device.capacity["a"].memory.compareTo(quantity("40Gi")) >= 0)"),
              ElementsAre(DeviceTerm{Property::Capacity, "a", "memory", Comparison::AtLeast, 40 * gib}));
}

TEST(CelTerms, EveryOrderOfQuantitiesIsRead) {
  const std::pair<const char*, Comparison> all[] = {{"==", Comparison::Equal},
                                                    {">=", Comparison::AtLeast},
                                                    {"<=", Comparison::AtMost},
                                                    {">", Comparison::Above},
                                                    {"<", Comparison::Below}};
  for (const auto& [symbol, comparison] : all) {
    const auto terms =
        read_terms(std::string(R"(device.capacity["a"].memory.compareTo(quantity("8")) )") + symbol + " 0");
    ASSERT_THAT(terms, SizeIs(1)) << symbol;
    EXPECT_EQ(terms[0].comparison, comparison);
  }
}

TEST(CelTerms, AConjunctionIsReadThroughParenthesesSpacesAndLines) {
  EXPECT_THAT(read_terms("((device.driver=='a')) &&\n\t(device.attributes[\"a\"].x==1&&device.attributes['b'].y == "
                         "'&& ) ||')"),
              SizeIs(3));
}

TEST(CelTerms, UnknownTermsLeaveTheOthers) {
  for (const char* unknown : {"device.attributes['a'].model.matches('^A')",
                              "!(device.driver == 'b')",
                              "device.driver != 'b'",
                              "device.attributes['a'].index >= 2",
                              "device.driver in ['a', 'b']",
                              "device.attributes['a'].x == 0x10",
                              "device.attributes['a'].x == 1u",
                              "device.attributes['a'].x == 1.5",
                              "'a' == device.driver",
                              "device.attributes['a'].x == 'it\\'s'",
                              "(device.driver == 'b' || true)",
                              "has(device.driver)",
                              "device.capacity['a'].m.compareTo(quantity('lots')) >= 0",
                              "device.capacity['a'].m.compareTo(quantity('1')) > 1",
                              "device.attributes['a'].x == -'a'",
                              "device.attributes['a'].x == -true",
                              "device.attributes['a'].x ==",
                              "device.attributes['a'].x == 99999999999999999999",
                              "device.driver == 'b' + 'c'",
                              "device",
                              "[1].all(x, x == 1)"})
    EXPECT_THAT(read_terms(std::string("device.driver == 'a' && ") + unknown),
                ElementsAre(DeviceTerm{Property::Driver, "", "", Comparison::Equal, "a"}))
        << unknown;
}

TEST(CelTerms, WhatIsNoConjunctionOrCannotBeSplitHasNoTerms) {
  for (const char* odd :
       {"", " ", "device.driver == 'a' || device.driver == 'b'", "true ? device.driver == 'a' : false",
        "device.driver == 'a' && true || false", "device.driver == 'a", "device.driver == 'a' && (",
        "device.driver == 'a')", "device.driver == 'a' && [)]", "device.driver == r'a'", "device.driver == '''a'''",
        "device.driver == 'a' && x == r'\\' && 'b'", "device.driver == 'a' // && device.driver == 'b'",
        "device.driver == 'a\n'", "&&", "device.driver == 'a\\"})
    EXPECT_THAT(read_terms(odd), IsEmpty()) << odd;
  EXPECT_THAT(read_terms(std::string(5000, '(') + "device.driver == 'a'" + std::string(5000, ')')), IsEmpty());
}

TEST(CelTerms, ADeviceWithoutThePropertyDoesNotFulfilATerm) {
  const Json device{
      {"attributes", {{"type", {{"string", "gpu"}}}, {"other.io/index", {{"int", 3}}}, {"full", {{"bool", true}}}}},
      {"capacity", {{"memory", {{"value", "80Gi"}}}, {"broken", {{"value", "x"}}}}}};
  const auto holds = [&](const char* term) {
    const auto terms = read_terms(term);
    EXPECT_THAT(terms, SizeIs(1)) << term;
    return fulfils(terms.at(0), "gpu.io", device);
  };
  for (const char* yes : {"device.driver == 'gpu.io'", "device.attributes['gpu.io'].type == 'gpu'",
                          "device.attributes['other.io'].index == 3", "device.attributes['gpu.io'].full == true",
                          "device.capacity['gpu.io'].memory.compareTo(quantity('80Gi')) == 0",
                          "device.capacity['gpu.io'].memory.compareTo(quantity('40Gi')) > 0",
                          "device.capacity['gpu.io'].memory.compareTo(quantity('81Gi')) < 0"})
    EXPECT_TRUE(holds(yes)) << yes;
  for (const char* no :
       {"device.driver == 'b'", "device.attributes['gpu.io'].type == 'mig'",
        "device.attributes['other.io'].type == 'gpu'", "device.attributes['gpu.io'].index == 3",
        "device.attributes['gpu.io'].type == 1", "device.attributes['gpu.io'].full == false",
        "device.attributes['gpu.io'].type == true", "device.capacity['gpu.io'].memory.compareTo(quantity('81Gi')) >= 0",
        "device.capacity['gpu.io'].memory.compareTo(quantity('79Gi')) <= 0",
        "device.capacity['gpu.io'].cores.compareTo(quantity('0')) >= 0",
        "device.capacity['gpu.io'].broken.compareTo(quantity('0')) >= 0"})
    EXPECT_FALSE(holds(no)) << no;
}

class Slices : public testing::Test {
 protected:
  Slices() {
    snapshot.nodes.emplace();
    for (const char* name : {"a", "b"}) {
      const Json labels{{"pool", name},
                        {"parallelmodel.dev/memory-gigabytes-per-second", *name == 'a' ? "900" : "300"}};
      snapshot.nodes->push_back(std::make_shared<const Json>(Json{
          {"metadata", {{"name", name}, {"labels", labels}}}, {"status", {{"allocatable", {{"memory", "64Gi"}}}}}}));
    }
    inventory.device_class = "gpus";
    inventory.selectors = {"device.driver == 'gpu.io'"};
    inventory.class_read = inventory.complete = true;
  }
  static Json device(const char* memory, const char* product = "P") {
    return {{"attributes", {{"productName", {{"string", product}}}}}, {"capacity", {{"memory", {{"value", memory}}}}}};
  }
  void add(const Json& placed, const Json::array_t& devices, int generation = 1) {
    Json slice{{"driver", "gpu.io"}, {"pool", {{"name", "p"}, {"generation", generation}}}, {"devices", devices}};
    slice.update(placed);
    inventory.slices.push_back(slice);
  }
  std::variant<Hardware, Refusal> hardware(const Json& claim = {{"deviceClassName", "gpus"}},
                                           const Json& selector = {}) {
    Json model = model_named("m");
    model["spec"]["devices"] = {{"count", 2}, {"claim", claim}};
    if (!selector.is_null()) model["spec"]["scheduling"]["nodeSelector"] = selector;
    return hardware_of(parse_spec(model), snapshot, inventory);
  }
  Hardware found(const Json& claim = {{"deviceClassName", "gpus"}}, const Json& selector = {}) {
    return std::get<Hardware>(hardware(claim, selector));
  }
  std::string refused(const Json& claim = {{"deviceClassName", "gpus"}}, const Json& selector = {}) {
    return std::get<Refusal>(hardware(claim, selector)).message;
  }
  Snapshot snapshot;
  DeviceInventory inventory;
};

TEST_F(Slices, TheSmallestDeviceOfAnAdmittedNodeCounts) {
  add({{"nodeName", "a"}}, {device("80Gi"), device("70Gi")});
  add({{"nodeName", "b"}}, {device("40Gi")});
  add({{"nodeName", "elsewhere"}}, {device("1Gi")});
  EXPECT_EQ(found().device_memory, 40 * gib);
  EXPECT_EQ(found().memory_source, "ResourceSlice");
  EXPECT_EQ(found().product, "P");
  EXPECT_EQ(found().memory_bandwidth.value, 300e9) << "labels of the nodes of the slices";
  const Hardware of_a = found({{"deviceClassName", "gpus"}}, {{"pool", "a"}});
  EXPECT_EQ(of_a.device_memory, 70 * gib);
  EXPECT_EQ(of_a.memory_bandwidth.value, 900e9);
}

TEST_F(Slices, SelectorsOfTheClassAndOfTheClaimBothExclude) {
  add({{"nodeName", "a"}}, {device("80Gi"), device("40Gi", "Q")});
  add({{"nodeName", "a"}, {"driver", "net.io"}}, {device("1Gi")});
  EXPECT_EQ(found().device_memory, 40 * gib);
  EXPECT_EQ(found().product, "") << "the products differ";
  const Json claim{{"deviceClassName", "gpus"}, {"selectors", {"device.attributes['gpu.io'].productName == 'P'"}}};
  EXPECT_EQ(found(claim).device_memory, 80 * gib);
  EXPECT_EQ(found(claim).product, "P");
}

TEST_F(Slices, ASliceOfNoSingleNodeCountsForEveryAdmittedOne) {
  for (const Json& placed :
       {Json{{"allNodes", true}}, Json{{"nodeSelector", {{"nodeSelectorTerms", Json::array()}}}}}) {
    inventory.slices.clear();
    add(placed, {device("24Gi")});
    EXPECT_EQ(found().device_memory, 24 * gib);
    EXPECT_EQ(found().memory_bandwidth.value, 300e9);
    EXPECT_THAT(refused({{"deviceClassName", "gpus"}}, {{"pool", "c"}}), HasSubstr("on admitted nodes"));
  }
}

TEST_F(Slices, DevicesMayNameTheirNodesThemselves) {
  Json near = device("80Gi"), far = device("1Gi");
  near["nodeName"] = "a", far["nodeName"] = "elsewhere";
  add({{"perDeviceNodeSelection", true}}, {near, far});
  EXPECT_EQ(found().device_memory, 80 * gib);
}

TEST_F(Slices, SlicesOfAnOldGenerationOfTheirPoolAreLeftOut) {
  add({{"nodeName", "a"}}, {device("1Gi")}, 1);
  add({{"nodeName", "a"}}, {device("80Gi")}, 2);
  EXPECT_EQ(found().device_memory, 80 * gib);
}

TEST_F(Slices, ACapacityOfAnyDomainAndAProductWithSpacesAreTaken) {
  Json qualified = device("80Gi", "NVIDIA H100 80GB HBM3");
  qualified["capacity"] = {{"vendor.io/memory", {{"value", "79Gi"}}}, {"memoryBandwidth", {{"value", "1"}}}};
  add({{"nodeName", "a"}}, {qualified});
  EXPECT_EQ(found().device_memory, 79 * gib);
  EXPECT_EQ(found().product, "NVIDIA-H100-80GB-HBM3") << "as node labels write it";
}

TEST_F(Slices, WithoutACapacityTheTableOfThePlannerHasTheMemoryOfAKnownProduct) {
  Json known = device("1", "NVIDIA H100 80GB HBM3");
  known.erase("capacity");
  add({{"nodeName", "a"}}, {known});
  EXPECT_EQ(found().product, "NVIDIA-H100-80GB-HBM3");
  known["attributes"]["productName"]["string"] = "unheard of";
  inventory.slices.clear();
  add({{"nodeName", "a"}}, {known});
  EXPECT_THAT(refused(), HasSubstr("the 1 devices of DeviceClass gpus on admitted nodes have no capacity memory"));
}

TEST_F(Slices, ARefusalSaysWhatWasLookedFor) {
  EXPECT_EQ(refused(),
            "DeviceClass gpus selects no device of any ResourceSlice on admitted nodes: set "
            "spec.devices.memory, for example 80Gi");
  inventory.unknown = "no DeviceClass has the extendedResourceName nvidia.com/gpu";
  EXPECT_THAT(refused(), HasSubstr(inventory.unknown + ": set spec.devices.memory"));
}

TEST_F(Slices, OddSlicesAreLeftOut) {
  inventory.slices = {Json(), Json::array(), {{"devices", 3}}, {{"driver", "gpu.io"}, {"devices", {1, nullptr, "x"}}}};
  add({{"nodeName", "a"}}, {device("-1"), device("much"), Json::object(), device("8Gi")});
  EXPECT_EQ(found().device_memory, 8 * gib);
}

TEST_F(Slices, WhereNodesMayNotBeReadEverySliceCounts) {
  snapshot.nodes.reset();
  add({{"nodeName", "anywhere"}}, {device("80Gi")});
  EXPECT_EQ(found().device_memory, 80 * gib);
}

TEST_F(Slices, TheyAreNeededForGpusWhoseMemoryNeitherSpecNorNodeStates) {
  const auto needs = [&](const Json& devices) {
    Json model = model_named("m");
    model["spec"]["devices"] = devices;
    return needs_inventory(parse_spec(model), snapshot);
  };
  const Json claim{{"deviceClassName", "gpus"}};
  EXPECT_TRUE(needs({{"count", 1}}));
  EXPECT_TRUE(needs({{"count", 1}, {"claim", claim}}));
  EXPECT_FALSE(needs({{"count", 1}, {"memory", "8Gi"}, {"claim", claim}}));
  EXPECT_FALSE(needs({{"count", 1}, {"type", "CPU"}, {"claim", claim}}));
  EXPECT_FALSE(needs({{"count", 1}, {"type", "CPU"}}));
  snapshot.nodes->push_back(std::make_shared<const Json>(
      Json{{"metadata", {{"name", "plugin"}}}, {"status", {{"allocatable", {{"nvidia.com/gpu", "8"}}}}}}));
  EXPECT_FALSE(needs({{"count", 1}})) << "a device plugin offers it";
  EXPECT_TRUE(needs({{"count", 1}, {"claim", claim}}));
}

class InventoryRequests : public testing::Test {
 protected:
  Spec spec_with(const Json& devices) {
    Json model = model_named("m");
    model["spec"]["devices"] = devices;
    model["spec"]["devices"]["count"] = 1;
    return parse_spec(model);
  }
  static Json device_class(const char* name, const char* resource, const char* made, const char* selector) {
    return {
        {"metadata", {{"name", name}, {"creationTimestamp", made}}},
        {"spec",
         {{"extendedResourceName", resource}, {"selectors", Json::array({{{"cel", {{"expression", selector}}}}})}}}};
  }
  static k8s::ApiError error(k8s::Failure failure, const std::string& message) { return {failure, 0, "", message, 0}; }
  DeviceInventory inventory;
};

TEST_F(InventoryRequests, TheNewestClassOfAnExtendedResourceIsTakenAndPagesAreRead) {
  const Spec spec = spec_with(Json::object());
  EXPECT_EQ(k8s::path_of(next_request(spec, inventory)), "/apis/resource.k8s.io/v1/deviceclasses");
  const Json classes{{"items",
                      {device_class("old", "nvidia.com/gpu", "2026-01-01T00:00:00Z", "true"),
                       device_class("zz", "nvidia.com/gpu", "2026-02-01T00:00:00Z", "true"),
                       device_class("new", "nvidia.com/gpu", "2026-02-01T00:00:00Z", "device.driver == 'gpu.io'"),
                       device_class("other", "amd.com/gpu", "2026-03-01T00:00:00Z", "true")}}};
  add_response(spec, classes, inventory);
  EXPECT_EQ(inventory.device_class, "new");
  k8s::Request request = next_request(spec, inventory);
  EXPECT_EQ(request.resource, resource_slices_resource);
  EXPECT_EQ(request.query.at("fieldSelector"), "spec.driver=gpu.io");
  EXPECT_FALSE(request.query.contains("continue"));
  const Json items = Json::array({{{"spec", {{"driver", "gpu.io"}}}}});
  add_response(spec, Json{{"metadata", {{"continue", "more"}}}, {"items", items}}, inventory);
  EXPECT_FALSE(inventory.complete);
  EXPECT_EQ(next_request(spec, inventory).query.at("continue"), "more");
  add_response(spec, Json{{"metadata", Json::object()}, {"items", items}}, inventory);
  EXPECT_TRUE(inventory.complete);
  EXPECT_THAT(inventory.slices, SizeIs(2));
  EXPECT_EQ(inventory.unknown, "");
}

TEST_F(InventoryRequests, TheClassThatASpecNamesIsReadAlone) {
  for (const Json& devices :
       {Json{{"resource", "deviceclass.resource.kubernetes.io/big"}}, Json{{"claim", {{"deviceClassName", "big"}}}}}) {
    DeviceInventory one;
    const Spec spec = spec_with(devices);
    EXPECT_EQ(k8s::path_of(next_request(spec, one)), "/apis/resource.k8s.io/v1/deviceclasses/big");
    add_response(spec, error(k8s::Failure::NotFound, "deviceclasses.resource.k8s.io \"big\" not found"), one);
    EXPECT_TRUE(one.complete);
    EXPECT_EQ(one.unknown, "there is no DeviceClass big");
  }
}

TEST_F(InventoryRequests, ADriverThatNoFieldSelectorTakesIsNotPutIntoOne) {
  const Spec spec = spec_with({{"claim", {{"deviceClassName", "c"}, {"selectors", {"device.driver == 'a,b=c'"}}}}});
  add_response(spec, device_class("c", "", "", "true"), inventory);
  EXPECT_FALSE(next_request(spec, inventory).query.contains("fieldSelector"));
}

TEST_F(InventoryRequests, AnApiThatIsAbsentOrForbiddenIsAnAnswer) {
  const Spec spec = spec_with(Json::object());
  DeviceInventory none = inventory;
  add_response(spec, Json{{"items", Json::array()}}, none);
  EXPECT_THAT(none.unknown, HasSubstr("no DeviceClass has the extendedResourceName nvidia.com/gpu"));
  DeviceInventory absent = inventory;
  add_response(spec, error(k8s::Failure::NotFound, "the server could not find the requested resource"), absent);
  EXPECT_THAT(absent.unknown, HasSubstr("does not serve resource.k8s.io/v1"));
  DeviceInventory forbidden = inventory;
  add_response(spec, error(k8s::Failure::Forbidden, "deviceclasses is forbidden"), forbidden);
  EXPECT_THAT(forbidden.unknown, HasSubstr("dra.enabled=true"));
  for (const DeviceInventory& one : {none, absent, forbidden}) EXPECT_TRUE(one.complete);
}

}  // namespace
}  // namespace pm::op::test
