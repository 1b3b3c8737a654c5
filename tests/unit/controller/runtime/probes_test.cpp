// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/probes.h"

#include <gtest/gtest.h>

#include <atomic>

#include "controller/runtime/metrics.h"

using namespace pm::k8s;

namespace {
HttpReply get(int port, const std::string& path) {
  ClusterConfig config;
  config.host = "127.0.0.1";
  config.port = port;
  config.tls = false;
  return Connection(config, {}).send({"GET", path, "", "", {}}, {});
}
}  // namespace

TEST(Probes, TellHealthAndReadinessApart) {
  prometheus::Registry registry;
  std::atomic<bool> ready{false};
  Probes probes("127.0.0.1", 0, 0, registry, [] { return true; }, [&] { return ready.load(); });
  EXPECT_EQ(get(probes.probe_port(), "/healthz").status, 200);
  EXPECT_EQ(get(probes.probe_port(), "/readyz").status, 503);
  ready = true;
  EXPECT_EQ(get(probes.probe_port(), "/readyz").status, 200);
}

TEST(Probes, MetricsCarryTheNamesThatDashboardsKnow) {
  prometheus::Registry registry;
  ControllerMetrics metrics(registry, "model");
  metrics.finished(ControllerMetrics::Outcome::RequeueAfter, 0.02);
  Probes probes("127.0.0.1", 0, 0, registry, [] { return true; }, [] { return true; });
  const HttpReply reply = get(probes.metrics_port(), "/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"controller_runtime_reconcile_total{controller=\"model\",result=\"requeue_after\"} 1",
        "controller_runtime_reconcile_errors_total{", "controller_runtime_terminal_reconcile_errors_total{",
        "controller_runtime_reconcile_panics_total{", "controller_runtime_reconcile_time_seconds_bucket{",
        "controller_runtime_max_concurrent_reconciles{", "controller_runtime_active_workers{", "workqueue_adds_total{",
        "workqueue_depth{", "workqueue_queue_duration_seconds_bucket{", "workqueue_work_duration_seconds_bucket{",
        "workqueue_unfinished_work_seconds{", "workqueue_longest_running_processor_seconds{",
        "workqueue_retries_total{"}) {
    EXPECT_NE(reply.body.find(line), std::string::npos) << line;
  }
}
