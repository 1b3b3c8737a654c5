// SPDX-License-Identifier: Apache-2.0
#include "controller/client/client_metrics.h"

namespace pm::k8s {
namespace {

std::string label_of(int code) { return code ? std::to_string(code) : "<error>"; }
const prometheus::Histogram::BucketBoundaries buckets{0.005, 0.025, 0.1, 0.25, 0.5, 1,
                                                      2,     4,     8,   15,   30,  60};  // client-go's

}  // namespace

ClientMetrics::ClientMetrics(prometheus::Registry& registry, std::string host)
    : host_(std::move(host)),
      requests_(prometheus::BuildCounter()
                    .Name("rest_client_requests_total")
                    .Help("Requests to the API server by code, method and host.")
                    .Register(registry)),
      retries_(prometheus::BuildCounter()
                   .Name("rest_client_request_retries_total")
                   .Help("Requests sent again by code, verb and host.")
                   .Register(registry)),
      seconds_(prometheus::BuildHistogram()
                   .Name("rest_client_request_duration_seconds")
                   .Help("Latency of requests by verb and host.")
                   .Register(registry)),
      limiter_(prometheus::BuildHistogram()
                   .Name("rest_client_rate_limiter_duration_seconds")
                   .Help("Wait for the client's own limit by verb and host.")
                   .Register(registry)) {}

void ClientMetrics::requested(const std::string& method, int code, double seconds) {
  requests_.Add({{"code", label_of(code)}, {"method", method}, {"host", host_}}).Increment();
  seconds_.Add({{"verb", method}, {"host", host_}}, buckets).Observe(seconds);
}

void ClientMetrics::watched(int code) {
  requests_.Add({{"code", label_of(code)}, {"method", "GET"}, {"host", host_}}).Increment();
}

void ClientMetrics::limited(const std::string& method, double seconds) {
  limiter_.Add({{"verb", method}, {"host", host_}}, buckets).Observe(seconds);
}

void ClientMetrics::retried(const std::string& method, int code) {
  retries_.Add({{"code", label_of(code)}, {"verb", method}, {"host", host_}}).Increment();
}

}  // namespace pm::k8s
