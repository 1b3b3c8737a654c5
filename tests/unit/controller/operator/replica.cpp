#include "replica.h"

#include "controller/operator/names.h"
#include "controller/operator/text.h"

namespace pm::op::test {

namespace {

const k8s::Resource& resource_of(const std::string& plural) {
  for (const k8s::Resource* resource : {&ParallelModels, &k8s::Pods, &k8s::ConfigMaps, &k8s::Services, &k8s::PodDisruptionBudgets, &k8s::Nodes}) {
    if (resource->plural == plural) return *resource;
  }
  throw std::logic_error("no watch of " + plural);
}

bool asks_for_policy(const FakeCluster& cluster) {
  const Json* model = cluster.find("parallelmodels", cluster.model_name);
  return model && op::at(*model, "/spec/model/policyRef").is_object();
}

}  // namespace

Replica::Replica(FakeCluster& cluster, bool listed) : cluster_(cluster), own_(cluster), key_{"ns", cluster.model_name} {
  for (const std::string plural : collections) {
    k8s::StoreOptions options;
    if (plural == "pods") options.prune = nullptr;   // its events are pruned already
    streams_.emplace(plural, Stream{k8s::StoreWriter(options), 0});
    if (plural == "nodes") continue;
    own_.add({resource_of(plural), "", plural == "parallelmodels" ? std::vector<k8s::LabelTerm>{} : k8s::parse_selector(label::name),
              streams_.at(plural).writer.reader(), [this](const Json&) { return std::vector<k8s::Key>{key_}; }});
  }
  for (const char* plural : collections) {
    if (listed) list(plural);
  }
}

Replica::Replica(FakeCluster& cluster, std::optional<k8s::WallTime> wake) : Replica(cluster) {
  wanted_ = false;
  wake_ = wake;
}

void Replica::list(const std::string& plural) {
  Stream& stream = streams_.at(plural);
  stream.writer.begin_list();
  for (const auto& object : cluster_.watched(plural)) stream.writer.list_item(*object);
  stream.writer.finish_list(std::to_string(cluster_.version()));
  stream.next = cluster_.events(plural).size();
  wanted_ = true;
}

size_t Replica::behind(const std::string& plural) const { return cluster_.events(plural).size() - streams_.at(plural).next; }

bool Replica::deliver(const std::string& plural, int times) {
  Stream& stream = streams_.at(plural);
  if (stream.next == cluster_.events(plural).size()) return false;
  const FakeCluster::Event& event = cluster_.events(plural)[stream.next++];
  for (int i = 0; i < times; ++i) event.removed ? stream.writer.remove(*event.object) : stream.writer.apply(*event.object);
  wanted_ = true;
  return true;
}

void Replica::catch_up() {
  for (const char* plural : collections) {
    while (deliver(plural)) {}
  }
}

bool Replica::wants() {
  if (state_) return true;
  if (wake_ && *wake_ <= cluster_.now()) wanted_ = true;
  return wanted_ && own_.visible(key_);
}

Snapshot Replica::look() const {
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
  return out;
}

void Replica::end(Done done) {
  state_.reset(), sent_.reset();
  if (done.error) wanted_ = true;   // the queue tries again
  wake_ = done.requeue_after ? std::optional(cluster_.now() + *done.requeue_after) : std::nullopt;
}

bool Replica::prepare() {
  if (sent_) return true;
  wanted_ = false;
  wake_.reset();
  seen_ = look();
  if (!seen_.model) return false;
  auto next = step(State{.memo = memo_}, seen_, std::nullopt, settings());
  if (auto* done = std::get_if<Done>(&next)) {
    end(std::move(*done));
    return false;
  }
  Call& call = std::get<Call>(next);
  state_ = std::move(call.state), sent_ = std::move(call.request);
  return true;
}

void Replica::finish(Fault fault) {
  ++requests;
  const k8s::ApiError silence{k8s::Failure::Transient, 0, "NoAnswer", "connection reset", 0};
  k8s::Response response = fault == Fault::AnswerLostUndone ? k8s::Response(silence) : own_.send(*sent_);
  if (fault == Fault::AnswerLost) response = silence;
  auto next = step(std::move(*state_), seen_, response, settings());
  if (auto* done = std::get_if<Done>(&next)) return end(std::move(*done));
  Call& call = std::get<Call>(next);
  state_ = std::move(call.state), sent_ = std::move(call.request);
}

/// True when the event that comes next is the one that trouble waits for, and has been dealt with.
bool World::event_trouble(const std::string& plural) {
  if (trouble_.plural != plural || heard[plural] != trouble_.at || !replica_->behind(plural)) return false;
  switch (trouble_.kind) {
    case Trouble::Kind::Hold: holds_ = true; break;
    case Trouble::Kind::Cut: met_ = true, replica_->list(plural); break;   // all events until now are lost
    case Trouble::Kind::Repeat: met_ = true, replica_->deliver(plural, 2), ++heard[plural]; break;
    default: return false;
  }
  return true;
}

void World::deliver() {
  const size_t lag = trouble_.kind == Trouble::Kind::Lag && !flush_ ? trouble_.at : 0;
  for (const std::string plural : collections) {
    while (replica_->behind(plural) > lag) {
      if (!met_ && event_trouble(plural)) break;
      replica_->deliver(plural);
      ++heard[plural];
    }
  }
  if (second_) second_->catch_up();
}

/// One request of a life, or what happens instead of it.
void World::one(Replica& replica) {
  if (!replica.prepare()) return;
  const bool now = !met_ && static_cast<size_t>(requests) == trouble_.at;
  ++requests;
  if (!now) return replica.finish();
  if (trouble_.kind == Trouble::Kind::Crash) {
    met_ = true;
    if (trouble_.fault == Fault::AnswerLost || trouble_.fault == Fault::AnswerLostUndone) return replica.finish(trouble_.fault);
    if (trouble_.fault == Fault::AfterRequest) cluster.send(replica.request());
    replica_ = std::make_unique<Replica>(cluster);
  } else if (trouble_.kind == Trouble::Kind::LateLanding) {
    // Its successor has listed one collection when the last request of the dead one lands.
    met_ = true;
    const k8s::Request late = replica.request();
    replica_ = std::make_unique<Replica>(cluster, false);
    replica_->list(trouble_.plural);
    cluster.send(late);
    for (const std::string plural : collections) {
      if (plural != trouble_.plural) replica_->list(plural);
    }
  } else if (trouble_.kind == Trouble::Kind::Second) {
    // It stands still in the middle of a pass, another one takes over until all is quiet, and then it goes on.
    met_ = true;
    second_ = std::move(replica_);
    replica_ = std::make_unique<Replica>(cluster);
    settle();
    while (second_->between()) second_->finish();
    second_.reset();
  } else if (trouble_.kind == Trouble::Kind::User) {
    met_ = true;
    trouble_.act(cluster);
    replica.finish();
  } else {
    replica.finish();
  }
}

void World::resume(const Rest& rest) {
  cluster = rest.cluster;
  replica_ = std::make_unique<Replica>(cluster, rest.wake);
  requests = rest.requests, heard = rest.heard;
}

void World::work() {
  for (int passes = 0; passes < 200 && replica_->wants(); ++passes) {
    one(*replica_);
    deliver();
  }
}

bool World::settle(int limit) {
  for (int second = 0, still = 0, silent = 0; second < limit; ++second) {
    const int64_t before = cluster.version();
    deliver();
    work();
    cluster.tick();
    silent = cluster.version() == before ? silent + 1 : 0;
    still = silent && !cluster.waits() ? still + 1 : 0;
    if (!silent) flush_ = false;
    const int quiet = asks_for_policy(cluster) ? 12 : 3;   // a user's ConfigMap is looked at every ten seconds
    if (holds_ && silent >= 3) {
      holds_ = false, met_ = true, still = 0;   // what was held comes at last
    } else if (trouble_.kind == Trouble::Kind::Lag && silent >= 3 && !flush_) {
      flush_ = true, still = 0;
    } else if (still < quiet) {
      continue;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace pm::op::test
