// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/controller.h"

#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "controller/runtime/own_writes.h"
#include "controller/runtime/reflector.h"
#include "controller/runtime/work_queue.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr auto resync_interval = 10h;      // controller-runtime's SyncPeriod
constexpr auto sampling_interval = 500ms;  // client-go's period for unfinished work
constexpr auto stuck_after = 5min;
constexpr auto unseen_after =
    1s;  // delay of a key whose own writes are not visible yet; the event usually comes sooner

/// Returns a generator of random numbers for use by one thread.
Uniform random_source() {
  return [engine = std::mt19937_64(std::random_device{}())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

std::vector<Key> owner_key(const Resource& primary, const Json& object) {
  const auto owner = controller_of(object);
  if (!owner || owner->kind != primary.kind) return {};
  const std::string group = owner->api_version.find('/') == std::string::npos
                                ? ""
                                : owner->api_version.substr(0, owner->api_version.find('/'));
  if (group != primary.group) return {};
  return {Key{primary.namespaced ? key_of(object).ns : "", owner->name}};
}

/// Returns whether only fields changed that the store drops, such as a heartbeat.
bool same_but_version(const Json& a, const Json& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [field, value] : a.items()) {
    const auto other = b.find(field);
    if (other == b.end()) return false;
    if (field == "resourceVersion") continue;
    if (field == "metadata" ? !same_but_version(value, *other) : value != *other) return false;
  }
  return true;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

class Controller::Impl {
 public:
  Impl(std::string name, WatchOptions primary, ControllerContext context)
      : name_(std::move(name)),
        context_(context),
        primary_(primary.resource),
        metrics_(context.registry, name_),
        queue_(metrics_),
        own_writes_(context.api),
        primary_store_(watch(std::move(primary), [this](const Json& object) {
          std::vector<Key> keys = related_ ? related_(object) : std::vector<Key>{};
          keys.push_back(key_of(object));
          return keys;
        })) {}

  void relate(std::function<std::vector<Key>(const Json&)> map) { related_ = std::move(map); }

  Store watch(WatchOptions options, std::function<std::vector<Key>(const Json&)> map) {
    auto selector = parse_selector(options.label_selector);
    auto metrics = std::make_unique<WatchMetrics>(context_.registry, name_, options.resource.plural);
    auto reflector = std::make_unique<Reflector>(
        Collection{options.resource, options.ns, options.label_selector}, std::move(options.store),
        Reflector::Context{context_.api, context_.watches, context_.clock, *metrics, random_source()},
        [this, map](const Change& change) { enqueue(change, map); }, [this] { note_synced(); });
    const Store store = reflector->store();
    own_writes_.add({options.resource, options.ns, std::move(selector), store, std::move(map)});
    watched_.push_back({std::move(metrics), std::move(reflector), options.resource.plural});
    return store;
  }

  void run(const Reconcile& reconcile, std::stop_token stop, int workers) {
    std::vector<std::jthread> threads;
    for (auto& watched : watched_) threads.emplace_back([&watched, stop] { watched.reflector->run(stop); });
    if (!wait_synced(stop)) return;
    LOG(INFO) << name_ << ": all " << watched_.size() << " stores are synced, " << workers << " workers start";
    metrics_.max_concurrent.Set(workers);
    for (int i = 0; i < workers; ++i) threads.emplace_back([this, &reconcile, stop] { work(reconcile, stop); });
    tick(stop);
  }

  bool ready() const {
    for (const auto& watched : watched_) {
      if (!watched.reflector->store().synced()) return false;
    }
    return true;
  }
  bool healthy() const { return queue_.longest_run() < stuck_after; }

  WorkQueue& queue() { return queue_; }
  OwnWrites& own_writes() { return own_writes_; }
  const Store& primary_store() const { return primary_store_; }
  const Resource& primary() const { return primary_; }

 private:
  struct Watched {
    std::unique_ptr<WatchMetrics> metrics;
    std::unique_ptr<Reflector> reflector;
    std::string plural;
  };

  /// Maps both versions of the object, because its owner may have changed.
  void enqueue(const Change& change, const std::function<std::vector<Key>(const Json&)>& map) {
    if (change.before && change.after && same_but_version(*change.before, *change.after)) return;
    std::set<Key> keys;
    for (const ObjectPtr& side : {change.before, change.after}) {
      if (!side) continue;
      for (const Key& key : map(*side)) keys.insert(key);
    }
    for (const Key& key : keys) queue_.add(key);
  }

  void note_synced() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  bool wait_synced(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, stop, 30s, [this] { return ready(); })) {
      if (stop.stop_requested()) return false;
      for (const auto& watched : watched_) {
        if (!watched.reflector->store().synced())
          LOG(WARNING) << name_ << ": still waiting for the first list of " << watched.plural;
      }
    }
    return !stop.stop_requested();
  }

  /// Runs periodic work of the controller on the thread of run().
  void tick(std::stop_token stop) {
    auto last = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      changed_.wait_for(lock, stop, sampling_interval, [] { return false; });
      queue_.sample();
      if (std::chrono::steady_clock::now() - last < resync_interval) continue;
      last = std::chrono::steady_clock::now();
      for (const Key& key : primary_store_.keys()) queue_.add(key);
    }
  }

  void work(const Reconcile& reconcile, std::stop_token stop) {
    while (const auto key = queue_.take(stop)) {
      if (own_writes_.visible(*key)) {
        metrics_.active_workers.Increment();
        process(*key, reconcile);
        metrics_.active_workers.Decrement();
      } else {
        VLOG(1) << name_ << ": " << to_string(*key) << " waits for its own writes to become visible";
        queue_.add_after(*key, unseen_after);
      }
      queue_.done(*key);
    }
  }

  void process(const Key& key, const Reconcile& reconcile) {
    using Outcome = ControllerMetrics::Outcome;
    const auto begin = std::chrono::steady_clock::now();
    const Result result = guarded(key, reconcile);
    Outcome outcome = Outcome::Success;
    if (result.error) {
      outcome = Outcome::Error;
      metrics_.errors.Increment();
      retry(key, result);
    } else {
      queue_.forget(key);
      if (result.requeue_after) {
        outcome = Outcome::RequeueAfter;
        queue_.add_after(key, *result.requeue_after);
      }
    }
    metrics_.finished(outcome, seconds_since(begin));
  }

  void retry(const Key& key, const Result& result) {
    if (result.terminal) {
      metrics_.terminal_errors.Increment();
      queue_.forget(key);
      LOG(ERROR) << name_ << ": " << to_string(key) << ": " << *result.error << "; waits for a change";
      return;
    }
    const milliseconds delay = queue_.add_backed_off(key);
    LOG(WARNING) << name_ << ": " << to_string(key) << ": " << *result.error << "; again in " << delay.count() << " ms";
  }

  /// Contains exceptions, so that one bad object does not affect the others.
  Result guarded(const Key& key, const Reconcile& reconcile) {
    try {
      return reconcile(key);
    } catch (const std::exception& error) {
      metrics_.panics.Increment();
      return {.error = std::string("exception: ").append(error.what())};
    } catch (...) {
      metrics_.panics.Increment();
      return {.error = "exception of unknown type"};
    }
  }

  const std::string name_;
  const ControllerContext context_;
  const Resource primary_;
  ControllerMetrics metrics_;
  WorkQueue queue_;
  OwnWrites own_writes_;
  std::vector<Watched> watched_;
  std::function<std::vector<Key>(const Json&)> related_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  const Store primary_store_;  // last: its construction uses the rest
};

Controller::Controller(std::string name, WatchOptions primary, ControllerContext context)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(primary), context)) {}
Controller::~Controller() = default;

Store Controller::primary() const { return impl_->primary_store(); }
void Controller::relates(std::function<std::vector<Key>(const Json&)> map) { impl_->relate(std::move(map)); }
Store Controller::owns(WatchOptions options) {
  return impl_->watch(std::move(options),
                      [primary = impl_->primary()](const Json& object) { return owner_key(primary, object); });
}
Store Controller::watches(WatchOptions options, std::function<std::vector<Key>(const Json&)> map) {
  return impl_->watch(std::move(options), std::move(map));
}
Api& Controller::api() { return impl_->own_writes(); }
void Controller::enqueue(const Key& key) { impl_->queue().add(key); }
void Controller::run(Reconcile reconcile, std::stop_token stop, int workers) { impl_->run(reconcile, stop, workers); }
bool Controller::ready() const { return impl_->ready(); }
bool Controller::healthy() const { return impl_->healthy(); }

}  // namespace pm::k8s
