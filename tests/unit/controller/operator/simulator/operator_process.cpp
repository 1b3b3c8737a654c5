// SPDX-License-Identifier: Apache-2.0
#include "operator_process.h"

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"

namespace pm::op::test {

namespace {

const k8s::Resource& resource_of(const std::string& plural) {
  for (const k8s::Resource* resource :
       {&parallel_models_resource, &k8s::pods_resource, &k8s::config_maps_resource, &k8s::services_resource,
        &k8s::pod_disruption_budgets_resource, &k8s::nodes_resource}) {
    if (resource->plural == plural) return *resource;
  }
  throw std::logic_error("no watch of " + plural);
}

}  // namespace

OperatorProcess::OperatorProcess(FakeCluster& cluster, bool listed, std::shared_ptr<ModelCache> cache)
    : cluster_(cluster), own_(cluster), key_{"ns", cluster.model_name}, cache_(std::move(cache)) {
  follow();
  for (const char* plural : collections) {
    if (listed) list(plural);
  }
}

OperatorProcess::OperatorProcess(const OperatorProcess& other, FakeCluster& cluster)
    : requests(other.requests),
      cluster_(cluster),
      own_(cluster),
      key_(other.key_),
      wanted_(other.wanted_),
      wake_(other.wake_),
      cache_(std::make_shared<ModelCache>(*other.cache_)),
      state_(other.state_),
      seen_(other.seen_) {
  if (state_) state_->cache = cache_;
  follow();
  for (auto& [plural, stream] : streams_) {
    const Stream& theirs = other.streams_.at(plural);
    stream.writer.begin_list();
    for (auto& object : theirs.writer.reader().list()) stream.writer.list_pruned(std::move(object));
    stream.writer.finish_list(theirs.writer.reader().version());
    stream.next = theirs.next;
  }
}

void OperatorProcess::follow() {
  static const std::vector<k8s::LabelTerm> ours = k8s::parse_selector(label::name);
  for (const std::string plural : collections) {
    streams_.emplace(plural, Stream{k8s::StoreWriter(), 0});
    if (plural == "nodes") continue;
    own_.add({resource_of(plural), "", plural == "parallelmodels" ? std::vector<k8s::LabelTerm>{} : ours,
              streams_.at(plural).writer.reader(), [this](const Json&) { return std::vector<k8s::Key>{key_}; }});
  }
}

bool OperatorProcess::knows_all() {
  if (state_ || !own_.visible(key_)) return false;
  return std::all_of(streams_.begin(), streams_.end(), [&](const auto& one) {
    return one.second.next == cluster_.happened(one.first) &&
           one.second.writer.reader().list() == cluster_.watched(one.first);
  });
}

void OperatorProcess::list(const std::string& plural) {
  Stream& stream = streams_.at(plural);
  stream.writer.begin_list();
  for (auto& object : cluster_.watched(plural)) stream.writer.list_pruned(std::move(object));
  stream.writer.finish_list(std::to_string(cluster_.version()));
  stream.next = cluster_.happened(plural);
  wanted_ = true;
}

size_t OperatorProcess::behind(const std::string& plural) const {
  return cluster_.happened(plural) - streams_.at(plural).next;
}

bool OperatorProcess::deliver(const std::string& plural, int times) {
  Stream& stream = streams_.at(plural);
  if (stream.next == cluster_.happened(plural)) return false;
  const FakeCluster::Event& event = cluster_.event(plural, stream.next++);
  for (int i = 0; i < times; ++i)
    event.removed ? stream.writer.remove(*event.object) : stream.writer.apply_pruned(event.object);
  wanted_ = true;
  return true;
}

bool OperatorProcess::wants() {
  if (state_) return true;
  if (wake_ && *wake_ <= cluster_.now()) wanted_ = true;
  return wanted_ && own_.visible(key_);
}

Snapshot OperatorProcess::look() const {
  const auto store = [&](const char* plural) { return streams_.at(plural).writer.reader(); };
  Snapshot out{.now = cluster_.now()};
  out.model = store("parallelmodels").get(key_);
  if (!out.model) return out;
  const std::string uid = k8s::uid_of(*out.model);
  out.pods = store("pods").owned_by(uid);
  out.config_maps = store("configmaps").owned_by(uid);
  out.services = store("services").owned_by(uid);
  out.budgets = store("poddisruptionbudgets").owned_by(uid);
  out.nodes = store("nodes").list();
  for (const std::string& name : canary_names(*out.model))
    out.canaries[name] = store("parallelmodels").get({key_.ns, name});
  return out;
}

void OperatorProcess::end(Done done) {
  state_.reset();
  if (done.error) wanted_ = true;  // the queue retries
  wake_ = done.requeue_after ? std::optional(cluster_.now() + *done.requeue_after) : std::nullopt;
}

bool OperatorProcess::prepare() {
  if (state_) return true;
  wanted_ = false;
  wake_.reset();
  seen_ = look();
  if (!seen_.model) return false;
  auto next = reconcile_step(ReconcileState{.cache = cache_}, seen_, std::nullopt, settings());
  if (auto* done = std::get_if<Done>(&next)) {
    end(std::move(*done));
    return false;
  }
  state_ = std::move(std::get<Call>(next).state);
  return true;
}

void OperatorProcess::finish(CrashPoint crash_point) {
  ++requests;
  const k8s::ApiError silence{k8s::Failure::Transient, 0, "NoAnswer", "connection reset", 0};
  k8s::Response response = crash_point == CrashPoint::AnswerLostUndone ? k8s::Response(silence) : own_.send(request());
  if (crash_point == CrashPoint::AnswerLost) response = silence;
  auto next = reconcile_step(std::move(*state_), seen_, response, settings());
  if (auto* done = std::get_if<Done>(&next)) return end(std::move(*done));
  state_ = std::move(std::get<Call>(next).state);
}

}  // namespace pm::op::test
