// rest_client_* metrics, named as client-go's.
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
  /// One answered (code) or unanswered ("<error>") request.
  void requested(const std::string& method, int code, double seconds);
  /// A watch ended. It lasts as long as it likes, so its duration says nothing.
  void watched(int code);
  void retried(const std::string& method, int code);
  /// A request waited for its turn.
  void limited(const std::string& method, double seconds);

 private:
  const std::string host_;
  prometheus::Family<prometheus::Counter>&requests_, &retries_;
  prometheus::Family<prometheus::Histogram>&seconds_, &limiter_;
};

}  // namespace pm::k8s
