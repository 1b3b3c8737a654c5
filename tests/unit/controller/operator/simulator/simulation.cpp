// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include "controller/operator/api/object_text.h"

namespace pm::op::test {

namespace {

constexpr int max_reconciles = 200;

bool asks_for_policy(const FakeCluster& cluster) {
  const Json* model = cluster.find("parallelmodels", cluster.model_name);
  return model && op::at(*model, "/spec/model/policyRef").is_object();
}

}  // namespace

Simulation::Simulation(const Simulation& undisturbed, InjectedFault fault)
    : cluster(undisturbed.cluster),
      requests(undisturbed.requests),
      delivered(undisturbed.delivered),
      fault_(std::move(fault)),
      shares_cache_(true),
      position_(undisturbed.position_),
      process_(std::make_unique<OperatorProcess>(*undisturbed.process_, cluster)) {}

void Simulation::become(const Simulation& other) {
  cluster = other.cluster;
  process_ = std::make_unique<OperatorProcess>(*other.process_, cluster);
  requests = other.requests, delivered = other.delivered, position_ = other.position_;
  injected_ = other.injected_;
}

void Simulation::become_idle_as(const Simulation& other) {
  auto violations = std::move(cluster.violations);
  cluster = other.cluster;
  cluster.violations = std::move(violations);
  process_ = std::make_unique<OperatorProcess>(*other.process_, cluster);
}

/// Injects the fault when the next event is the one that it waits for. Returns true then.
bool Simulation::inject_event_fault(const std::string& plural) {
  if (!fault_.by_event() || fault_.plural != plural || delivered[plural] != fault_.at || !process_->behind(plural))
    return false;
  switch (fault_.kind) {
    case InjectedFault::Kind::Hold:
      holds_ = true;
      break;
    case InjectedFault::Kind::Cut:
      injected_ = true, process_->list(plural);
      break;  // all events until now are lost
    default:
      injected_ = true, process_->deliver(plural, 2), ++delivered[plural];
  }
  return true;
}

void Simulation::deliver() {
  const size_t lag = fault_.kind == InjectedFault::Kind::Lag && !flush_ ? fault_.at : 0;
  for (const std::string plural : collections) {
    if (lag) max_lag = std::max(max_lag, process_->behind(plural));
    while (process_->behind(plural) > lag) {
      if (!injected_ && inject_event_fault(plural)) break;
      process_->deliver(plural);
      ++delivered[plural];
    }
    cluster.forget(plural, process_->delivered(plural));  // a suspended process decides from its earlier view
  }
}

/// Replaces the process by another one.
void Simulation::fail_over(bool listed) {
  auto cache = shares_cache_ ? std::make_shared<ModelCache>(process_->cache()) : std::make_shared<ModelCache>();
  cache->gone.clear(), cache->mount_events.clear();
  process_ = std::make_unique<OperatorProcess>(cluster, listed, std::move(cache));
}

/// Sends one request, or injects the fault instead.
void Simulation::send_one_request(OperatorProcess& process) {
  if (!process.prepare()) return;
  if (observer) observer->moment(*this);
  const bool now = !injected_ && !fault_.by_event() && static_cast<size_t>(requests) == fault_.at;
  ++requests;
  now ? inject(process) : process.finish();
}

void Simulation::inject(OperatorProcess& process) {
  switch (fault_.kind) {
    case InjectedFault::Kind::Crash:
      injected_ = true;
      if (fault_.crash_point == CrashPoint::AnswerLost || fault_.crash_point == CrashPoint::AnswerLostUndone)
        return process.finish(fault_.crash_point);
      if (fault_.crash_point == CrashPoint::AfterRequest) cluster.send(process.request());
      return fail_over();
    case InjectedFault::Kind::LateLanding: {
      // The successor has listed one collection when the last request of the crashed process arrives.
      injected_ = true;
      const k8s::Request late = process.request();
      fail_over(false);
      process_->list(fault_.plural);
      cluster.send(late);
      for (const std::string plural : collections) {
        if (plural != fault_.plural) process_->list(plural);
      }
      return;
    }
    case InjectedFault::Kind::Second: {
      // The process is suspended in a reconcile, another one takes over until it is idle, and then the first continues.
      injected_ = true;
      second_ = std::move(process_);
      auto cache = shares_cache_ ? std::make_shared<ModelCache>(second_->cache()) : std::make_shared<ModelCache>();
      cache->gone.clear(), cache->mount_events.clear();
      process_ = std::make_unique<OperatorProcess>(cluster, true, std::move(cache));
      const Position outer = position_;
      settle();
      position_ = outer;
      while (second_->between()) second_->finish();
      second_.reset();
      return;
    }
    case InjectedFault::Kind::User:
      injected_ = true;
      fault_.act(cluster);
      return process.finish();
    default:
      return process.finish();
  }
}

Simulation::End Simulation::settle(int limit) {
  position_ = {};
  return go_on(limit);
}

Simulation::End Simulation::go_on(int limit) {
  const auto leaves = [&] { return observer && !second_ && observer->leave(*this); };
  const auto skips = [&] { return observer && second_ && observer->skip(*this); };
  while (position_.second < limit) {
    if (!position_.works) {
      if (observer) observer->moment(*this);
      position_.before = cluster.version();
      deliver();
      position_.works = true, position_.reconciles = 0;
      if (leaves()) return End::Left;
      if (skips()) return End::Rest;
    }
    for (; position_.reconciles < max_reconciles && process_->wants(); ++position_.reconciles) {
      send_one_request(*process_);
      deliver();
      if (process_->between()) continue;
      if (leaves()) return End::Left;
      if (skips()) return End::Rest;
    }
    position_.works = false;
    cluster.tick();
    ++position_.second;
    if (is_idle()) return End::Rest;
  }
  return End::TooLong;
}

/// Returns true when the simulation is idle at the end of a second.
bool Simulation::is_idle() {
  auto& [second, still, silent, before, reconciles, works] = position_;
  silent = cluster.version() == before ? silent + 1 : 0;
  still = silent && !cluster.waits() ? still + 1 : 0;
  if (!silent) flush_ = false;
  const int quiet = asks_for_policy(cluster) ? 12 : 3;  // a user's ConfigMap is read every ten seconds
  if (holds_ && silent >= 3) {
    holds_ = false, injected_ = true, still = 0;  // the held events are delivered
  } else if (fault_.kind == InjectedFault::Kind::Lag && silent >= 3 && !flush_) {
    flush_ = true, still = 0;
  } else {
    return still >= quiet;
  }
  return false;
}

}  // namespace pm::op::test
