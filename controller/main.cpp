// parallelmodel-controller: wires the operator to a cluster, and stops cleanly.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <iostream>
#include <mutex>
#include <thread>

#include "controller/client/client.h"
#include "controller/core/log.h"
#include "controller/flags.h"
#include "controller/operator/reconciler.h"
#include "controller/runtime/controller.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/probes.h"

namespace {

using namespace pm;

constexpr std::chrono::seconds grace{3};   // for requests in flight after a signal; then they are cut, to be gone within five seconds

/// Of every thread made later: they are read with sigwait, so no code runs in a handler.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

/// The pod's name, for events.
std::string instance_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name ? name : "parallelmodel-controller";
}

/// On both address families where the host has them.
std::unique_ptr<k8s::Probes> serve_probes(const Flags& flags, prometheus::Registry& registry, k8s::Controller& controller) {
  const auto healthy = [&] { return controller.healthy(); };
  const auto ready = [&] { return controller.ready(); };
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
  const sigset_t signals = block_signals();
  const k8s::RealClock clock;
  prometheus::Registry registry;
  k8s::Client client(k8s::find_config(flags.kubeconfig, k8s::real_environment), clock, registry);
  std::jthread watchdog;   // outlives all that sends, so that nothing holds up the end
  k8s::Controller controller("parallelmodel", op::parallel_models(flags.ns), {client, client, clock, registry});
  k8s::EventRecorder events(client, clock, "parallelmodel.dev/controller", instance_name());
  op::HttpStatusProbe probe;
  op::Reconciler reconciler(controller, probe, events, clock, registry,
                            {{flags.worker_image, flags.worker_read_only_root}, flags.ns, flags.read_nodes});
  const auto probes = serve_probes(flags, registry, controller);
  LOG(INFO) << "parallelmodel-controller " PM_VERSION " on " << k8s::host_and_port(client.config()) << ", "
            << (flags.ns.empty() ? "all namespaces" : "namespace " + flags.ns) << ", worker image " << flags.worker_image;

  std::stop_source stop;
  std::jthread loop([&] { controller.run([&](const k8s::Key& key) { return reconciler.reconcile(key); }, stop.get_token(), flags.workers); });
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(INFO) << "signal " << signal << ": stopping";
  watchdog = abort_after(grace, client);
  stop.request_stop();
  return 0;
}

Flags flags_of(int count, char** arguments) {
  Flags flags = parse_flags({arguments + 1, arguments + count});
  if (flags.worker_image.empty()) flags.worker_image = k8s::real_environment("PARALLELMODEL_WORKER_IMAGE").value_or("");
  if (flags.worker_image.empty() && !flags.help && !flags.version) throw UsageError("which image do workers run? Give --worker-image or set PARALLELMODEL_WORKER_IMAGE");
  return flags;
}

}  // namespace

int main(int count, char** arguments) {
  signal(SIGPIPE, SIG_IGN);   // writing to a closed TLS connection must be an error, not the end
  try {
    const Flags flags = flags_of(count, arguments);
    if (flags.help) return std::cout << usage(), 0;
    if (flags.version) return std::cout << "parallelmodel-controller " PM_VERSION "\n", 0;
    k8s::start_logging(arguments[0]);
    return run(flags);
  } catch (const UsageError& error) {
    std::cerr << "parallelmodel-controller: " << error.what() << "\n";
  } catch (const k8s::ConfigError& error) {
    std::cerr << "parallelmodel-controller: " << error.what() << "\n";
  }
  return 2;
}
