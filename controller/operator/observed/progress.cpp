// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/observed/progress.h"

#include <algorithm>

#include "contract/status_report.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

using k8s::Json;

base::Transfer Progress::loaded() const {
  base::Transfer sum;
  for (const auto& [rank, progress] : ranks) {
    sum.done += progress.loaded.done;
    sum.total += progress.loaded.total;
    sum.bytes_per_second += progress.loaded.bytes_per_second;
  }
  return sum;
}

bool Progress::all_ready() const {
  return !ranks.empty() &&
         std::all_of(ranks.begin(), ranks.end(), [](const auto& entry) { return entry.second.ready; });
}

std::optional<Progress> progress_of(const Json& answer, int64_t replica_generation, int ranks) {
  const auto report = status_report_from_json(answer);
  if (!report || report->replica_generation != replica_generation) return std::nullopt;
  Progress out;
  out.state = reason_word(report->state, "Starting");
  for (const RankReport& rank : report->ranks) {
    if (rank.rank >= ranks) continue;
    RankProgress progress{.ready = rank.state == ready_state, .loaded = {rank.load_bytes, rank.load_total}};
    if (const double seconds = rank.load_seconds.value_or(0); seconds > 0)
      progress.loaded.bytes_per_second = static_cast<double>(rank.load_bytes) / seconds;
    if (progress.ready) progress.measured = rank.measured;
    if (rank.load_seconds) out.load_seconds = std::max(out.load_seconds.value_or(0), *rank.load_seconds);
    out.ranks[rank.rank] = progress;
  }
  return out;
}

}  // namespace pm::op
