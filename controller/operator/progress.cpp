#include "controller/operator/progress.h"

#include <algorithm>
#include <cmath>

#include "controller/core/object.h"
#include "controller/operator/text.h"

namespace pm::op {

using k8s::Json;

namespace {

constexpr int64_t most_bytes = int64_t{1} << 50;   // far above any device: sums of ranks cannot overflow

int64_t bytes_at(const Json& object, const std::string& pointer) {
  return std::clamp<int64_t>(integer_at(object, pointer).value_or(0), 0, most_bytes);
}

std::optional<Memory> memory_of(const Json& object) {
  if (!object.is_object()) return std::nullopt;
  Memory memory;
  memory.weights = bytes_at(object, "/weights");
  memory.kv = bytes_at(object, "/kv");
  memory.activations = bytes_at(object, "/activations");
  memory.communicator = bytes_at(object, "/communicator");
  memory.runtime = bytes_at(object, "/runtime");
  return memory;
}

}  // namespace

int64_t Progress::loaded() const {
  int64_t sum = 0;
  for (const auto& [rank, progress] : ranks) sum += progress.loaded;
  return sum;
}

int64_t Progress::total() const {
  int64_t sum = 0;
  for (const auto& [rank, progress] : ranks) sum += progress.total;
  return sum;
}

bool Progress::all_ready() const {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [](const auto& entry) { return entry.second.ready; });
}

std::optional<Progress> progress_of(const Json& answer, int64_t incarnation, int ranks) {
  if (!answer.is_object() || integer_at(answer, "/incarnation") != incarnation) return std::nullopt;
  Progress out;
  out.state = reason_word(k8s::string_at(answer, "/state"), "Starting");
  const Json& list = at(answer, "/ranks");
  if (!list.is_array() || list.size() > 1024) return std::nullopt;
  for (const Json& entry : list) {
    const auto rank = integer_at(entry, "/rank");
    if (!rank || *rank < 0 || *rank >= ranks) continue;
    RankProgress progress;
    progress.ready = k8s::string_at(entry, "/state") == "Ready";
    progress.loaded = bytes_at(entry, "/loadBytes");
    progress.total = bytes_at(entry, "/loadTotal");
    if (progress.ready) progress.measured = memory_of(at(entry, "/measured"));
    const Json& seconds = at(entry, "/loadSeconds");
    if (seconds.is_number() && std::isfinite(seconds.get<double>())) {
      out.load_seconds = std::max(out.load_seconds.value_or(0), std::clamp(seconds.get<double>(), 0.0, 1e6));
    }
    out.ranks[static_cast<int>(*rank)] = progress;
  }
  return out;
}

}  // namespace pm::op
