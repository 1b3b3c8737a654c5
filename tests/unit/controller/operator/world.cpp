#include "world.h"

#include "controller/operator/text.h"

namespace pm::op::test {

namespace {

constexpr int most_passes = 200;

bool asks_for_policy(const FakeCluster& cluster) {
  const Json* model = cluster.find("parallelmodels", cluster.model_name);
  return model && op::at(*model, "/spec/model/policyRef").is_object();
}

}  // namespace

World::World(const World& calm, Trouble trouble)
    : cluster(calm.cluster), requests(calm.requests), heard(calm.heard), trouble_(std::move(trouble)), thrifty_(true), place_(calm.place_),
      replica_(std::make_unique<Replica>(*calm.replica_, cluster)) {}

void World::become(const World& other) {
  cluster = other.cluster;
  replica_ = std::make_unique<Replica>(*other.replica_, cluster);
  requests = other.requests, heard = other.heard, place_ = other.place_;
  met_ = other.met_;
}

void World::rest_as(const World& other) {
  auto violations = std::move(cluster.violations);
  cluster = other.cluster;
  cluster.violations = std::move(violations);
  replica_ = std::make_unique<Replica>(*other.replica_, cluster);
}

/// True when the event that comes next is the one that trouble waits for, and has been dealt with.
bool World::event_trouble(const std::string& plural) {
  if (!trouble_.by_event() || trouble_.plural != plural || heard[plural] != trouble_.at || !replica_->behind(plural)) return false;
  switch (trouble_.kind) {
    case Trouble::Kind::Hold: holds_ = true; break;
    case Trouble::Kind::Cut: met_ = true, replica_->list(plural); break;   // all events until now are lost
    default: met_ = true, replica_->deliver(plural, 2), ++heard[plural];
  }
  return true;
}

void World::deliver() {
  const size_t lag = trouble_.kind == Trouble::Kind::Lag && !flush_ ? trouble_.at : 0;
  for (const std::string plural : collections) {
    if (lag) most_behind = std::max(most_behind, replica_->behind(plural));
    while (replica_->behind(plural) > lag) {
      if (!met_ && event_trouble(plural)) break;
      replica_->deliver(plural);
      ++heard[plural];
    }
    cluster.forget(plural, replica_->heard(plural));   // one that stands still decides from what it saw before
  }
}

/// Another process takes over.
void World::succeed(bool listed) {
  auto memo = thrifty_ ? std::make_shared<Memo>(replica_->memo()) : std::make_shared<Memo>();
  memo->gone.clear(), memo->heard.clear();
  replica_ = std::make_unique<Replica>(cluster, listed, std::move(memo));
}

/// One request of a life, or what happens instead of it.
void World::one(Replica& replica) {
  if (!replica.prepare()) return;
  if (watcher) watcher->moment(*this);
  const bool now = !met_ && !trouble_.by_event() && static_cast<size_t>(requests) == trouble_.at;
  ++requests;
  now ? trouble(replica) : replica.finish();
}

void World::trouble(Replica& replica) {
  switch (trouble_.kind) {
    case Trouble::Kind::Crash:
      met_ = true;
      if (trouble_.fault == Fault::AnswerLost || trouble_.fault == Fault::AnswerLostUndone) return replica.finish(trouble_.fault);
      if (trouble_.fault == Fault::AfterRequest) cluster.send(replica.request());
      return succeed();
    case Trouble::Kind::LateLanding: {
      // Its successor has listed one collection when the last request of the dead one lands.
      met_ = true;
      const k8s::Request late = replica.request();
      succeed(false);
      replica_->list(trouble_.plural);
      cluster.send(late);
      for (const std::string plural : collections) {
        if (plural != trouble_.plural) replica_->list(plural);
      }
      return;
    }
    case Trouble::Kind::Second: {
      // It stands still in the middle of a pass, another one takes over until all is quiet, and then it goes on.
      met_ = true;
      second_ = std::move(replica_);
      auto memo = thrifty_ ? std::make_shared<Memo>(second_->memo()) : std::make_shared<Memo>();
      memo->gone.clear(), memo->heard.clear();
      replica_ = std::make_unique<Replica>(cluster, true, std::move(memo));
      const Place outer = place_;
      settle();
      place_ = outer;
      while (second_->between()) second_->finish();
      second_.reset();
      return;
    }
    case Trouble::Kind::User:
      met_ = true;
      trouble_.act(cluster);
      return replica.finish();
    default: return replica.finish();
  }
}

World::End World::settle(int limit) {
  place_ = {};
  return go_on(limit);
}

World::End World::go_on(int limit) {
  const auto leaves = [&] { return watcher && !second_ && watcher->leave(*this); };
  const auto skips = [&] { return watcher && second_ && watcher->skip(*this); };
  while (place_.second < limit) {
    if (!place_.works) {
      if (watcher) watcher->moment(*this);
      place_.before = cluster.version();
      deliver();
      place_.works = true, place_.passes = 0;
      if (leaves()) return End::Left;
      if (skips()) return End::Rest;
    }
    for (; place_.passes < most_passes && replica_->wants(); ++place_.passes) {
      one(*replica_);
      deliver();
      if (replica_->between()) continue;
      if (leaves()) return End::Left;
      if (skips()) return End::Rest;
    }
    place_.works = false;
    cluster.tick();
    ++place_.second;
    if (rests()) return End::Rest;
  }
  return End::TooLong;
}

/// At the end of a second.
bool World::rests() {
  auto& [second, still, silent, before, passes, works] = place_;
  silent = cluster.version() == before ? silent + 1 : 0;
  still = silent && !cluster.waits() ? still + 1 : 0;
  if (!silent) flush_ = false;
  const int quiet = asks_for_policy(cluster) ? 12 : 3;   // a user's ConfigMap is looked at every ten seconds
  if (holds_ && silent >= 3) {
    holds_ = false, met_ = true, still = 0;   // what was held comes at last
  } else if (trouble_.kind == Trouble::Kind::Lag && silent >= 3 && !flush_) {
    flush_ = true, still = 0;
  } else {
    return still >= quiet;
  }
  return false;
}

}  // namespace pm::op::test
