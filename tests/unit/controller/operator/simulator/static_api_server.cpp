// SPDX-License-Identifier: Apache-2.0
#include "static_api_server.h"

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "fake_operator.h"
#include "server_objects.h"

namespace pm::op::test {

using k8s::Json;

namespace {

const char* const collections[] = {"parallelmodels", "pods", "configmaps", "services", "poddisruptionbudgets"};
const char* const present = "2026-01-01T01:00:00Z";

std::string name_of(int model) {
  const std::string digits = std::to_string(model);
  return "g" + std::string(4 - std::min<size_t>(4, digits.size()), '0') + digits;
}

size_t number_at(const k8s::Request& request, const char* name, size_t otherwise) {
  const auto found = request.query.find(name);
  return found == request.query.end() || found->second.empty() ? otherwise : std::stoul(found->second);
}

/// Returns the /status of a worker with one loaded rank.
Json answer() {
  const Json measured{
      {"weights", 1 << 20}, {"kv", 1 << 20}, {"activations", 1 << 16}, {"communicator", 0}, {"runtime", 1 << 20}};
  return {{"state", "Ready"},
          {"replicaGeneration", 1},
          {"ranks", Json::array({{{"rank", 0},
                                  {"state", "Ready"},
                                  {"loadBytes", 1 << 20},
                                  {"loadTotal", 1 << 20},
                                  {"loadSeconds", 1.5},
                                  {"measured", measured}}})}};
}

}  // namespace

k8s::Response StaticApiServer::send(const k8s::Request& request) {
  if (request.verb != k8s::Verb::List || request.resource == k8s::events_resource) {
    ++others;
    return k8s::ApiError{k8s::Failure::Permanent, 405, "MethodNotAllowed", "nothing is taken here", 0};
  }
  const auto known = texts_.find(request.resource.plural);  // several threads call this, so nothing is added
  static const std::vector<std::string> none;
  const auto& all = known == texts_.end() ? none : known->second;
  const size_t begin = number_at(request, "continue", 0),
               end = std::min(all.size(), begin + number_at(request, "limit", all.size()));
  std::string page = R"({"metadata":{"resourceVersion":"1000000","continue":")" +
                     (end < all.size() ? std::to_string(end) : "") + R"("},"items":[)";
  for (size_t i = begin; i < end; ++i) page += (i == begin ? "" : ",") + all[i];
  page += "]}";
  for (size_t before = longest_page;
       page.size() > before && !longest_page.compare_exchange_weak(before, page.size());) {
  }
  return Json::parse(page);
}

std::optional<k8s::ApiError> StaticApiServer::watch(const k8s::Request&, const std::function<bool(k8s::WatchEvent&&)>&,
                                                    std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait(lock, stop, [] { return false; });
  return std::nullopt;
}

void fill(StaticApiServer& server, const IdleModels& rest) {
  for (int model = 0; model < rest.models; ++model) {
    FakeCluster cluster;
    cluster.logs = false;
    cluster.model_name = name_of(model);
    for (int replica = 0; replica < rest.replicas; ++replica)
      cluster.probes[replica_pod_name(cluster.model_name, replica, 0, 1)] = answer();
    Json wanted = model_named(cluster.model_name, 1, rest.replicas);
    wanted["spec"]["devices"].erase("resource");
    cluster.apply(wanted);
    if (!FakeOperator(cluster).settle()) throw std::logic_error(cluster.model_name + " does not come to rest");
    for (const char* plural : collections) {
      for (const Json& object : cluster.all(plural)) server.put(plural, with_server_fields(plural, object, model));
    }
  }
  for (int node = 0; node < rest.nodes; ++node)
    server.put("nodes", server_node(node == 0 ? "node-a" : "node-" + std::to_string(node)));
}

k8s::Clock::Wall IdleOperator::FixedClock::wall() const { return *k8s::parse_time(present); }

IdleOperator::IdleOperator(StaticApiServer& server)
    : controller_("parallelmodel", parallel_models(""), {server, server, clock_, registry_}),
      events_(server, clock_, "parallelmodel.dev/controller", "test"),
      reconciler_(controller_, status_probe_, events_, clock_, registry_, {.settings = settings()}) {}

void IdleOperator::settle(int models, int workers) {
  std::mutex mutex;
  std::condition_variable_any done;
  std::set<std::string> passed;
  std::stop_source stop;
  std::jthread loop([&] {
    controller_.run(
        [&](const k8s::Key& key) {
          const k8s::Result result = reconciler_.reconcile(key);
          const std::lock_guard lock(mutex);
          passed.insert(key.name);
          done.notify_all();
          return result;
        },
        stop.get_token(), workers);
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return static_cast<int>(passed.size()) == models; });
  stop.request_stop();
}

k8s::Result IdleOperator::reconcile(int model) { return reconciler_.reconcile({"ns", name_of(model)}); }

}  // namespace pm::op::test
