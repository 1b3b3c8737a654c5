// SPDX-License-Identifier: Apache-2.0
// Records the rest_client_* metrics under the names of client-go.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

namespace pm::k8s {

/// Thread-safe.
class ClientMetrics {
 public:
  ClientMetrics(prometheus::Registry&, std::string host);
  /// Counts a request with its status code, or with "<error>" without a response.
  void requested(const std::string& method, int code, double seconds);
  /// Counts the end of a watch. Its duration is not recorded, because it is arbitrary.
  void watched(int code);
  void retried(const std::string& method, int code);
  /// Records the time that a request waited for the rate limiter.
  void limited(const std::string& method, double seconds);

 private:
  const std::string host_;
  prometheus::Family<prometheus::Counter>&requests_, &retries_;
  prometheus::Family<prometheus::Histogram>&seconds_, &limiter_;
};

}  // namespace pm::k8s
