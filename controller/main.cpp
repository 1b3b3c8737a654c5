// SPDX-License-Identifier: Apache-2.0
// Connects the operator to a cluster, runs it, and stops cleanly on a signal.
#include <malloc.h>
#include <prometheus/gauge.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>

#include "base/signals.h"
#include "controller/client/client.h"
#include "controller/flags.h"
#include "controller/operator/shell/reconciler.h"
#include "controller/runtime/controller.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/leader_elector.h"
#include "controller/runtime/probes.h"

#include "base/log.h"

namespace {

using namespace pm;

constexpr int most_arenas = 4;          // of malloc; each retains freed memory, and the default is eight per CPU
constexpr int large_block = 256 << 10;  // larger blocks are returned to the system at once; by default malloc raises
                                        // this to the largest block freed, such as a page of a list
constexpr timespec trim_period{20, 0};  // free memory of arenas is returned to the system
constexpr std::chrono::seconds grace{
    3};  // for requests in flight after a signal; then they are cancelled, so it exits within five seconds

/// Returns the name of the pod, for Events.
std::string instance_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name ? name : "parallelmodel-controller";
}

/// Returns the namespace of this process; "" outside of a cluster without --lease-namespace.
std::string own_namespace(const Flags& flags, const k8s::ClusterConfig& config) {
  return !flags.lease_ns.empty() ? flags.lease_ns : config.ns;
}

/// Takes part in leader election. A leader that lost its Lease exits: a reconcile may be half done, and another leader
/// may have begun.
class Leadership {
 public:
  Leadership(const Flags& flags, const k8s::ClusterConfig& config, const k8s::Clock& clock,
             prometheus::Registry& registry)
      : wanted_(flags.leader_elect),
        client_(
            config, clock, registry,
            {.connect = std::chrono::seconds(2), .read = std::chrono::seconds(5), .total = std::chrono::seconds(5)}),
        elector_(
            client_, clock, [this] { return chance_(random_); }, election_of(flags, config)),
        leads_(prometheus::BuildGauge()
                   .Name("leader_election_master_status")
                   .Help("1: this process leads")
                   .Register(registry)
                   .Add({{"name", flags.lease}})) {}

  bool leads() const { return !wanted_ || elector_.holds(); }

  /// Blocks until this process leads. Returns false when stopped before.
  bool await(std::stop_token stop) {
    if (!wanted_) return !stop.stop_requested();
    thread_ = std::jthread([this](std::stop_token end) { run(end); });
    watch_ = std::jthread([this](std::stop_token end) { end_when_lost(end); });
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [&] { return elector_.holds(); });
  }
  /// Releases the Lease after the last write.
  void resign() {
    watch_ = {};
    thread_ = {};
    if (wanted_) elector_.release();
  }

 private:
  static k8s::Election election_of(const Flags& flags, const k8s::ClusterConfig& config) {
    const std::string ns = own_namespace(flags, config);
    if (flags.leader_elect && ns.empty())
      throw UsageError("--leader-elect requires the namespace of the Lease: set --lease-namespace");
    return {.ns = ns,
            .name = flags.lease,
            .identity = instance_name() + "_" + std::to_string(std::random_device{}()) + std::to_string(getpid())};
  }

  void run(std::stop_token stop) {
    bool led = false;
    while (!stop.stop_requested()) {
      const bool leads = elector_.attempt();
      if (leads && !led) LOG(INFO) << "this process leads";
      led = leads;
      leads_.Set(leads ? 1 : 0);
      std::unique_lock lock(mutex_);
      changed_.notify_all();
      wake_.wait_for(lock, stop, elector_.pause(), [] { return false; });
    }
  }

  void end_when_lost(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (elector_.lost()) {
        LOG(ERROR) << "the lease is lost: this process ends, another leads";
        _exit(1);
      }
      wake_.wait_for(lock, stop, std::chrono::milliseconds(250), [] { return false; });
    }
  }

  const bool wanted_;
  std::mt19937_64 random_{std::random_device{}()};
  std::uniform_real_distribution<double> chance_{0, 1};
  k8s::Client client_;
  k8s::LeaderElector elector_;
  prometheus::Gauge& leads_;
  std::mutex mutex_;
  std::condition_variable_any changed_, wake_;
  std::jthread thread_, watch_;
};

/// Listens on both address families where the host has them.
std::unique_ptr<k8s::Probes> serve_probes(const Flags& flags, prometheus::Registry& registry,
                                          k8s::Controller& controller, const Leadership& leadership) {
  const auto healthy = [&] { return controller.healthy(); };
  const auto ready = [&] { return !leadership.leads() || controller.ready(); };
  try {
    return std::make_unique<k8s::Probes>("::", flags.probe_port, flags.metrics_port, registry, healthy, ready);
  } catch (const k8s::ConfigError&) {
    return std::make_unique<k8s::Probes>("0.0.0.0", flags.probe_port, flags.metrics_port, registry, healthy, ready);
  }
}

std::jthread abort_after(std::chrono::seconds delay, k8s::Client& client) {
  return std::jthread([delay, &client](std::stop_token done) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    if (!wake.wait_for(lock, done, delay, [] { return false; }) && !done.stop_requested()) client.abort();
  });
}

int run(const Flags& flags) {
  const sigset_t signals = base::block_signals({SIGTERM, SIGINT});
  const k8s::RealClock clock;
  prometheus::Registry registry;
  k8s::Client client(k8s::find_config(flags.kubeconfig, k8s::real_environment), clock, registry, {},
                     {static_cast<double>(flags.qps), static_cast<double>(flags.burst)});
  std::jthread watchdog;  // outlives all senders, so that nothing delays the exit
  Leadership leadership(flags, client.config(), clock, registry);
  client.guard([&leadership] { return leadership.leads(); });
  k8s::Controller controller("parallelmodel", op::parallel_models(flags.ns), {client, client, clock, registry});
  k8s::EventRecorder events(client, clock, "parallelmodel.dev/controller", instance_name());
  op::HttpStatusProbe probe;
  op::Reconciler reconciler(controller, probe, events, clock, registry,
                            {{flags.worker_image, flags.worker_read_only_root, flags.worker_cuda_image,
                              own_namespace(flags, client.config())},
                             flags.ns,
                             flags.read_nodes});
  const auto probes = serve_probes(flags, registry, controller, leadership);
  LOG(INFO) << "parallelmodel-controller " PM_VERSION " on " << k8s::host_and_port(client.config()) << ", "
            << (flags.ns.empty() ? "all namespaces" : "namespace " + flags.ns) << ", worker image "
            << flags.worker_image << (flags.worker_cuda_image.empty() ? "" : ", on GPUs " + flags.worker_cuda_image);

  std::stop_source stop;
  std::jthread loop([&] {
    if (leadership.await(stop.get_token()))
      controller.run([&](const k8s::Key& key) { return reconciler.reconcile(key); }, stop.get_token(), flags.workers);
  });
  int signal = -1;
  while (signal < 0) {
    signal = sigtimedwait(&signals, nullptr, &trim_period);
    if (signal < 0) malloc_trim(0);
  }
  LOG(INFO) << "signal " << signal << ": stopping";
  watchdog = abort_after(grace, client);
  stop.request_stop();
  loop.join();
  leadership.resign();
  return 0;
}

Flags flags_of(int count, char** arguments) {
  Flags flags = parse_flags({arguments + 1, arguments + count});
  if (flags.worker_image.empty()) flags.worker_image = k8s::real_environment("PARALLELMODEL_WORKER_IMAGE").value_or("");
  if (flags.worker_cuda_image.empty())
    flags.worker_cuda_image = k8s::real_environment("PARALLELMODEL_WORKER_CUDA_IMAGE").value_or("");
  if (flags.worker_image.empty() && !flags.help && !flags.version)
    throw UsageError("which image do workers run? Give --worker-image or set PARALLELMODEL_WORKER_IMAGE");
  return flags;
}

}  // namespace

int main(int count, char** arguments) {
  signal(SIGPIPE, SIG_IGN);  // a write to a closed TLS connection must be an error, not the end of the process
  mallopt(M_ARENA_MAX, most_arenas);
  mallopt(M_MMAP_THRESHOLD, large_block);
  try {
    const Flags flags = flags_of(count, arguments);
    if (flags.help) return std::cout << usage(), 0;
    if (flags.version) return std::cout << "parallelmodel-controller " PM_VERSION "\n", 0;
    base::start_logging(arguments[0]);
    return run(flags);
  } catch (const UsageError& error) {
    std::cerr << "parallelmodel-controller: " << error.what() << "\n";
  } catch (const k8s::ConfigError& error) {
    std::cerr << "parallelmodel-controller: " << error.what() << "\n";
  }
  return 2;
}
