// SPDX-License-Identifier: Apache-2.0
// Measures the memory of idle ParallelModels in the controller, and tests that the retained fields are enough.
// PM_MEMORY_MODELS=1000 PM_MEMORY_NODES=100 PM_MEMORY_WORKERS=16 measures at the size of bench/scale.sh,
// PM_MEMORY_SHOW=1 prints the objects.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "controller/core/packed.h"
#include "controller/operator/shell/store_options.h"
#include "tests/unit/controller/operator/simulator/static_api_server.h"

namespace pm::op::test {
namespace {

using k8s::Json;

double heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

double resident_mib() {
  std::ifstream status("/proc/self/statm");
  long all = 0, resident = 0;
  status >> all >> resident;
  return static_cast<double>(resident) * 4 / 1024;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int number_of_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

struct Cost {
  double bytes = 0, passes_per_second = 0;
  int requests = 0;
};

Cost cost_of(const IdleModels& rest, int workers, int rounds) {
  StaticApiServer server;
  fill(server, rest);
  malloc_trim(0);
  const double before = heap_bytes(), resident_before = resident_mib();
  Cost cost;
  {
    IdleOperator resident(server);
    resident.settle(rest.models, workers);
    cost.bytes = heap_bytes() - before;
    const double rss = resident_mib();
    malloc_trim(0);
    const double begin = thread_seconds();
    for (int round = 0; round < rounds; ++round) {
      for (int model = 0; model < rest.models; ++model) EXPECT_FALSE(resident.reconcile(model).error);
    }
    cost.passes_per_second = rounds * rest.models / (thread_seconds() - begin);
    cost.requests = server.others;
    std::printf(
        "%d models of %d replicas: %.1f KiB a model; RSS grew by %.1f MiB, trimmed %.1f MiB; longest page %.1f MiB; "
        "%.0f "
        "reconciles per CPU second; %d requests\n",
        rest.models, rest.replicas, cost.bytes / 1024 / rest.models, rss - resident_before,
        resident_mib() - resident_before, static_cast<double>(server.longest_page) / (1 << 20), cost.passes_per_second,
        cost.requests);
  }
  malloc_trim(0);
  return cost;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool own_malloc = false;  // a sanitizer has its own malloc, which reports nothing
#else
constexpr bool own_malloc = true;
#endif

/// As pruned trees, a model and a pod took 72 and 10 KiB. Fixed costs weigh on so few models; with more of them a model
/// takes 14 KiB.
TEST(Memory, OfModelsAtRestIsLittleAndTheyNeedNothing) {
  const int models = number_of_environment("PM_MEMORY_MODELS", 20),
            workers = number_of_environment("PM_MEMORY_WORKERS", 2),
            rounds = number_of_environment("PM_MEMORY_ROUNDS", 5);
  const int nodes = number_of_environment("PM_MEMORY_NODES", 1);
  const Cost one = cost_of({models, 1, nodes}, workers, rounds), ten = cost_of({models, 10, nodes}, workers, rounds);
  EXPECT_EQ(one.requests + ten.requests, 0) << "reconciles from pruned objects find no drift";
  if (!own_malloc) GTEST_SKIP() << "the heap is a sanitizer's";
  if (nodes > models / 20) return;  // the nodes would dominate
  EXPECT_LT(one.bytes / models, 24 << 10) << "bytes of a model with one pod";
  EXPECT_LT((ten.bytes - one.bytes) / models / 9, 1 << 10) << "bytes of a pod more, and of its replica's record";
}

TEST(Memory, OfEachKind) {
  StaticApiServer server;
  fill(server, {2, 10, 2});
  for (const k8s::Resource* one :
       {&parallel_models_resource, &k8s::pods_resource, &k8s::config_maps_resource, &k8s::services_resource,
        &k8s::pod_disruption_budgets_resource, &k8s::nodes_resource}) {
    const auto& texts = server.texts(one->plural);
    const auto prune = store_options(*one).prune;
    size_t text = 0, slim = 0, packed = 0;
    std::vector<Json> kept;
    for (const std::string& whole : texts) {
      Json object = Json::parse(whole);
      prune(object);
      for (int i = 0; i < 3; ++i) (void)k8s::Packed(object);  // the dictionary is filled
      text += whole.size(), slim += object.dump().size(), packed += k8s::Packed(object).size();
      kept.push_back(std::move(object));
    }
    const double before = heap_bytes();
    const std::vector<Json> trees = kept;
    const size_t n = texts.size();
    std::printf("%-22s: as served %5zu bytes, pruned %4zu, that as a tree %5.0f, packed %4zu\n", one->plural.c_str(),
                text / n, slim / n, (heap_bytes() - before) / static_cast<double>(n), packed / n);
    if (std::getenv("PM_MEMORY_SHOW")) std::printf("%s\n%s\n", texts.front().c_str(), kept.front().dump().c_str());
    EXPECT_LT(slim, text) << one->plural;
    EXPECT_LT(packed, *one == k8s::config_maps_resource ? slim * 9 / 10 : slim / 2)
        << one->plural;  // a plan is one long text
  }
}

}  // namespace
}  // namespace pm::op::test
