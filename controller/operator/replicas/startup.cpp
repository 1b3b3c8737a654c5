// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/replicas/startup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "controller/operator/api/object_text.h"

namespace pm::op {

using k8s::Json;

namespace {

double round_to_tenth(double seconds) { return std::round(std::max(0.0, seconds) * 10) / 10; }

double between(k8s::WallTime begin, k8s::WallTime end) {
  return round_to_tenth(std::chrono::duration<double>(end - begin).count());
}

std::string text_of(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f s", seconds == std::floor(seconds) ? 0 : 1, seconds);
  return text;
}

struct Stage {
  const char *key, *name;
  double Startup::* seconds;
};
constexpr std::array stages{Stage{"scheduled", "scheduled", &Startup::scheduled},
                            Stage{"pulled", "pulled", &Startup::pulled}, Stage{"loaded", "loaded", &Startup::loaded},
                            Stage{"warmed", "warmed up", &Startup::warmed}};

}  // namespace

Startup startup_of(const std::vector<const PodState*>& pods, double load_seconds) {
  k8s::WallTime created = k8s::WallTime::max(), bound{}, running{}, ready{};
  for (const PodState* pod : pods) {
    const auto since = pod->created_since;
    created = std::min(created, since.value_or(pod->bound_since.value_or(created)));
    bound = std::max(bound, pod->bound_since.value_or(bound));
    running = std::max(running, pod->running_since.value_or(running));
    ready = std::max(ready, pod->ready_since.value_or(ready));
  }
  bound = std::max(bound, created), running = std::max(running, bound), ready = std::max(ready, running);
  Startup out{.scheduled = between(created, bound), .pulled = between(bound, running)};
  const double run = between(running, ready);
  out.loaded = std::min(round_to_tenth(load_seconds), run);
  out.warmed = round_to_tenth(run - out.loaded);
  return out;
}

Json to_json(const Startup& startup) {
  Json out{{"total", round_to_tenth(startup.total())}};
  for (const Stage& stage : stages) out[stage.key] = startup.*stage.seconds;
  return out;
}

std::optional<Startup> startup_from_json(const Json& value) {
  Startup out;
  for (const Stage& stage : stages) {
    const Json& seconds = at(value, std::string("/") + stage.key);
    if (!seconds.is_number()) return std::nullopt;
    out.*stage.seconds = std::clamp(seconds.get<double>(), 0.0, 1e9);
  }
  return out;
}

std::string to_text(const Startup& startup) {
  std::string text = text_of(round_to_tenth(startup.total()));
  for (const Stage& stage : stages)
    text += (&stage == stages.data() ? ": " : ", ") + std::string(stage.name) + " " + text_of(startup.*stage.seconds);
  return text;
}

}  // namespace pm::op
