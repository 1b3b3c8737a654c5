// What ParallelModels at rest cost the controller, and that what its stores keep of them is enough.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "controller/core/packed.h"
#include "controller/operator/kept.h"
#include "shelf.h"

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

struct Cost { double bytes = 0, passes_per_second = 0; int requests = 0; };

Cost cost_of(const Rest& rest, int workers, int rounds) {
  Shelf shelf;
  fill(shelf, rest);
  malloc_trim(0);
  const double before = heap_bytes(), resident_before = resident_mib();
  Cost cost;
  {
    Resident resident(shelf);
    resident.settle(rest.models, workers);
    cost.bytes = heap_bytes() - before;
    const double rss = resident_mib();
    malloc_trim(0);
    const double begin = thread_seconds();
    for (int round = 0; round < rounds; ++round) {
      for (int model = 0; model < rest.models; ++model) EXPECT_FALSE(resident.pass(model).error);
    }
    cost.passes_per_second = rounds * rest.models / (thread_seconds() - begin);
    cost.requests = shelf.others;
    std::printf("%d models of %d groups: %.1f KiB a model; RSS grew by %.1f MiB, trimmed %.1f MiB; longest page %.1f MiB; %.0f passes per CPU second; %d requests\n", rest.models, rest.groups,
                cost.bytes / 1024 / rest.models, rss - resident_before, resident_mib() - resident_before, static_cast<double>(shelf.longest_page) / (1 << 20), cost.passes_per_second, cost.requests);
  }
  malloc_trim(0);
  return cost;
}

TEST(Memory, OfModelsAtRest) {
  const int models = number_of_environment("PM_MEMORY_MODELS", 20), workers = number_of_environment("PM_MEMORY_WORKERS", 2), rounds = number_of_environment("PM_MEMORY_ROUNDS", 20);
  for (int groups : {1, 10}) cost_of({models, groups, 100}, workers, rounds);
}

TEST(Memory, OfEachKind) {
  Shelf shelf;
  fill(shelf, {2, 10, 2});
  for (const k8s::Resource* one : {&ParallelModels, &k8s::Pods, &k8s::ConfigMaps, &k8s::Services, &k8s::PodDisruptionBudgets, &k8s::Nodes}) {
    const auto& texts = shelf.texts(one->plural);
    const double n = static_cast<double>(texts.size());
    const auto prune = kept_of(*one).prune;
    double text = 0, slim = 0;
    std::vector<Json> kept;
    for (const std::string& whole : texts) {
      Json object = Json::parse(whole);
      prune(object);
      text += static_cast<double>(whole.size()), slim += static_cast<double>(object.dump().size());
      (void)k8s::Packed(object);
      kept.push_back(std::move(object));
    }
    const double before = heap_bytes();
    const std::vector<Json> trees = kept;
    const double between = heap_bytes();
    std::vector<k8s::Packed> packed;
    for (const Json& object : kept) packed.emplace_back(object);
    std::printf("%-22s: as served %6.0f bytes, pruned %6.0f, as a tree %6.0f, packed %6.0f\n", one->plural.c_str(), text / n, slim / n, (between - before) / n, (heap_bytes() - between) / n);
    if (std::getenv("PM_MEMORY_SHOW")) std::printf("%s\n%s\n", texts.front().c_str(), kept.front().dump().c_str());
  }
}

}  // namespace
}  // namespace pm::op::test
