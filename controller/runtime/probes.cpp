// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/probes.h"

#include <prometheus/text_serializer.h>

namespace pm::k8s {
namespace {

using Answer = HttpServer::Answer;

std::function<Answer()> verdict(std::function<bool()> good) {
  return [good = std::move(good)] { return good() ? Answer{200, "ok"} : Answer{503, "not ok"}; };
}

std::function<Answer()> scrape(prometheus::Registry& registry) {
  return [&registry] {
    return Answer{200, prometheus::TextSerializer().Serialize(registry.Collect()),
                  "text/plain; version=0.0.4; charset=utf-8"};
  };
}

}  // namespace

Probes::Probes(const std::string& address, int probe_port, int metrics_port, prometheus::Registry& registry,
               std::function<bool()> healthy, std::function<bool()> ready)
    : probes_(address, probe_port, {{"/healthz", verdict(std::move(healthy))}, {"/readyz", verdict(std::move(ready))}}),
      metrics_(address, metrics_port, {{"/metrics", scrape(registry)}}) {}

}  // namespace pm::k8s
