// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/fetching.h"

#include <algorithm>

#include "base/transfer.h"
#include "contract/fetch_report.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"

namespace pm::op {

namespace {

using std::chrono::seconds;

constexpr seconds claim_again{30};

class Fetcher {
 public:
  Fetcher(const Owner& owner, const Spec& spec, const Snapshot& snapshot, const Settings& settings,
          const StoredPlan& stored, const Json& map, const std::string& source, const std::optional<Claim>& claim)
      : owner_(owner),
        spec_(spec),
        snapshot_(snapshot),
        settings_(settings),
        stored_(stored),
        map_(map),
        source_(source),
        claim_(claim) {}

  Fetching run() {
    look();
    return std::move(out_);
  }

 private:
  void look() {
    out_.done = annotation_of(map_, annotation::fetched) == source_;
    if (out_.done) return;
    const Json wanted = fetch_pod(owner_, spec_, settings_, stored_.revision);
    for (const auto& pod : snapshot_.pods) {
      if (k8s::label_of(*pod, label::role) != "fetch") continue;
      const PodState state = pod_state(pod, snapshot_);
      if (state.fenced)
        return act(
            remove(k8s::pods_resource, *pod, 0),
            "node " + state.node +
                " is gone, and with it the fetch pod");  // even if it still runs, two writers write the same bytes
      if (state.deleting) return say(name_of(Reason::Fetching), "the old fetch pod " + state.name + " goes away");
      if (state.hash != k8s::label_of(wanted, label::pod_hash))
        return act(remove(k8s::pods_resource, *pod, 5), "a fetch pod of a previous spec is stopped");
      return judge(state);
    }
    if (!claim_) {
      out_.asks_claim = true;
      return say(name_of(Reason::Fetching), "the PVC is being read");
    }
    if (claim_good()) act(create(wanted), "the download starts soon");
  }

  void say(const std::string& reason, const std::string& message) {
    out_.reason = reason_word(reason, name_of(Reason::Fetching));
    out_.message = clip(message, 1500);
  }
  void act(k8s::Request request, const std::string& message) {
    out_.action = std::move(request);
    say(name_of(Reason::Fetching), message);
  }

  /// Checks that the PVC exists and is writable. Creates a missing PVC that the operator owns.
  bool claim_good() {
    const std::string name = "PersistentVolumeClaim " + spec_.source.claim;
    if (!claim_->known) return true;
    if (!claim_->found && spec_.source.hub->own_claim) {
      act(create(cache_claim(owner_, spec_, stored_metadata(map_), make_pod_layout(spec_, stored_.plan).nodes())),
          name + " is about to be made");
    } else if (!claim_->found) {
      out_.wake = snapshot_.now + claim_again;
      say(name_of(Reason::ClaimNotFound), name + " of spec.model.cache.claimName is not in namespace " + owner_.key.ns +
                                              "; create it, or omit claimName so that the operator creates one");
    } else if (spec_.source.hub->own_claim && claim_->cache_of != owner_.key.name) {
      out_.wake = snapshot_.now + claim_again;
      say(name_of(Reason::NameConflict),
          name +
              " exists but does not belong to this ParallelModel; set spec.model.cache.claimName "
              "to its name to use it, or delete it");
    } else if (!claim_->writable) {
      out_.wake = snapshot_.now + claim_again;
      say(name_of(Reason::ClaimNotShareable),
          name + " is " + claim_->modes + ", and the fetch pod has to write to it: use ReadWriteMany or ReadWriteOnce");
    } else {
      return true;
    }
    return false;
  }

  void judge(const PodState& pod) {
    if (pod.exit && pod.exit->code == 0) {
      Json annotations{{annotation::fetched, source_}};
      if (pod.exit->at && pod.created_since) {
        const auto took = std::chrono::duration_cast<seconds>(*pod.exit->at - *pod.created_since);
        annotations[annotation::fetch_seconds] = std::to_string(std::max(seconds(0), took).count());
      }
      return act(annotate(k8s::config_maps_resource, map_, annotations), "the download is complete");
    }
    if (pod.exit) {
      const k8s::WallTime again = pod.exit->at.value_or(snapshot_.now) + pause_after(pod.exit->reason);
      out_.wake = again;
      if (again <= snapshot_.now) return act(remove(k8s::pods_resource, *pod.object, 0), "the download continues soon");
      return say(pod.exit->reason == Reason::RankLost || pod.exit->reason == Reason::Interrupted
                     ? name_of(Reason::Fetching)
                     : pod.exit->reason,
                 pod.exit->message + "; it goes on at " + k8s::format_time(again) + ", or at once when pod " +
                     pod.name + " is deleted");
    }
    if (pod.wait) {
      const std::string& text = pod.wait->message;
      const bool lost =
          text.find("persistentvolumeclaim") != std::string::npos && text.find("not found") != std::string::npos;
      return say(lost                                   ? name_of(Reason::ClaimNotFound)
                 : pod.wait->reason == Reason::Starting ? name_of(Reason::Fetching)
                                                        : pod.wait->reason,
                 "pod " + pod.name + " waits: " + text);
    }
    const auto answer = snapshot_.probes.find(pod.name);
    const auto progress = answer == snapshot_.probes.end() ? std::nullopt : fetch_progress(answer->second);
    if (progress) return say(progress->reason, progress->message);
    say(name_of(Reason::Fetching), "pod " + pod.name + " downloads " + spec_.source.hub->id);
  }

  const Owner& owner_;
  const Spec& spec_;
  const Snapshot& snapshot_;
  const Settings& settings_;
  const StoredPlan& stored_;
  const Json& map_;
  const std::string& source_;
  const std::optional<Claim>& claim_;
  Fetching out_;
};

}  // namespace

k8s::Request get_claim(const Owner& owner, const Spec& spec) {
  return {.verb = k8s::Verb::Get,
          .resource = k8s::persistent_volume_claims_resource,
          .ns = owner.key.ns,
          .name = spec.source.claim};
}

Claim parse_claim(const k8s::Response& response) {
  if (k8s::failed(response))
    return {.found = k8s::error_of(response).failure != k8s::Failure::NotFound,
            .known = k8s::error_of(response).failure != k8s::Failure::Forbidden};
  Claim claim{.shareable = false,
              .writable = false,
              .cache_of = k8s::label_of(k8s::object_of(response), label::role) == "cache"
                              ? k8s::label_of(k8s::object_of(response), label::name)
                              : ""};
  const Json& modes = at(k8s::object_of(response), "/spec/accessModes");
  if (!modes.is_array()) return {.known = false};
  for (const Json& mode : modes) {
    if (!mode.is_string()) continue;
    claim.modes += (claim.modes.empty() ? "" : ", ") + clip(mode.get<std::string>(), 64);
    claim.shareable |= mode == "ReadOnlyMany" || mode == "ReadWriteMany";
    claim.writable |= mode != "ReadOnlyMany";
  }
  return claim;
}

Fetching plan_fetch(const Owner& owner, const Spec& spec, const Snapshot& snapshot, const Settings& settings,
                    const StoredPlan& stored, const Json& map, const std::string& source,
                    const std::optional<Claim>& claim) {
  return Fetcher(owner, spec, snapshot, settings, stored, map, source, claim).run();
}

seconds pause_after(const std::string& reason) {
  if (reason == Reason::SourceUnreachable) return seconds(30);   // the pod has backed off itself before it failed
  if (reason == Reason::ChecksumMismatch) return seconds(1800);  // each try may be hundreds of GiB
  if (reason == Reason::RankLost || reason == Reason::NodeLost || reason == Reason::Interrupted) return seconds(10);
  return seconds(300);
}

bool fetches(const PodState& pod) {
  return pod.running_since && !pod.exit && !pod.deleting && !k8s::string_at(*pod.object, "/status/podIP").empty();
}

std::optional<Wait> fetch_progress(const Json& answer) {
  const std::optional<FetchReport> report = fetch_report_from_json(answer);
  if (!report) return std::nullopt;
  const std::string amount =
      report->total_bytes > 0
          ? base::to_text({report->fetched_bytes, report->total_bytes, static_cast<double>(report->bytes_per_second)})
          : "the hub is queried for the files";
  if (!report->reason.empty())
    return Wait{reason_word(report->reason, name_of(Reason::Fetching)),
                amount + "; " + clip(report->message, 1000) + "; it is tried again"};
  if (report->state == waiting_state)
    return Wait{name_of(Reason::Fetching),
                amount + "; waits for the download of " + clip(report->waits_for, 300) + " to the same claim"};
  return Wait{name_of(Reason::Fetching), amount};
}

}  // namespace pm::op
