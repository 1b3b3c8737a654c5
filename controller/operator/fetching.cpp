#include "controller/operator/fetching.h"

#include <algorithm>

#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

using std::chrono::seconds;

constexpr seconds claim_again{30};

class Fetcher {
 public:
  Fetcher(const Owner& owner, const Spec& spec, const Snapshot& snapshot, const Settings& settings, const StoredPlan& stored, const Json& map, const std::string& source, const std::optional<Claim>& claim)
      : owner_(owner), spec_(spec), snapshot_(snapshot), settings_(settings), stored_(stored), map_(map), source_(source), claim_(claim) {}

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
      if (state.fenced) return act(remove(k8s::Pods, *pod, 0), "node " + state.node + " is gone, and with it the fetch pod");   // should it live on: two writers write the same bytes
      if (state.deleting) return say("Fetching", "the old fetch pod " + state.name + " goes away");
      if (state.hash != k8s::label_of(wanted, label::pod_hash)) return act(remove(k8s::Pods, *pod, 5), "a fetch pod of a former spec is stopped");
      return judge(state);
    }
    if (!claim_) {
      out_.asks_claim = true;
      return say("Fetching", "the claim is looked at");
    }
    if (claim_good()) act(create(wanted), "the download is about to start");
  }

  void say(const std::string& reason, const std::string& message) {
    out_.reason = reason_word(reason, "Fetching");
    out_.message = clip(message, 1500);
  }
  void act(k8s::Request request, const std::string& message) {
    out_.action = std::move(request);
    say("Fetching", message);
  }

  /// The claim is there and takes bytes; one of ours that is missing is made.
  bool claim_good() {
    const std::string name = "PersistentVolumeClaim " + spec_.source.claim;
    if (!claim_->known) return true;
    if (!claim_->found && spec_.source.hub->own_claim) {
      act(create(cache_claim(owner_, spec_, stored_facts(map_), layout_of(spec_, stored_.plan).nodes())), name + " is about to be made");
    } else if (!claim_->found) {
      out_.wake = snapshot_.now + claim_again;
      say("ClaimNotFound", name + " of spec.model.cache.claimName is not in namespace " + owner_.key.ns + "; create it, or leave claimName out to have one made");
    } else if (spec_.source.hub->own_claim && claim_->cache_of != owner_.key.name) {
      out_.wake = snapshot_.now + claim_again;
      say("NameConflict", name + " exists and was not made for this ParallelModel; name it in spec.model.cache.claimName to use it all the same, or delete it");
    } else if (!claim_->writable) {
      out_.wake = snapshot_.now + claim_again;
      say("ClaimNotShareable", name + " is " + claim_->modes + ", and the fetch pod has to write to it: use ReadWriteMany or ReadWriteOnce");
    } else {
      return true;
    }
    return false;
  }

  void judge(const PodState& pod) {
    if (pod.exit && pod.exit->code == 0) {
      return act(annotate(k8s::ConfigMaps, map_, {{annotation::fetched, source_}}), "the download is complete");
    }
    if (pod.exit) {
      const k8s::WallTime again = pod.exit->at.value_or(snapshot_.now) + pause_after(pod.exit->reason);
      out_.wake = again;
      if (again <= snapshot_.now) return act(remove(k8s::Pods, *pod.object, 0), "the download is about to go on");
      return say(pod.exit->reason == "RankLost" || pod.exit->reason == "Interrupted" ? "Fetching" : pod.exit->reason, pod.exit->message + "; it goes on at " + k8s::format_time(again) + ", or at once when pod " + pod.name + " is deleted");
    }
    if (pod.wait) {
      const std::string& text = pod.wait->message;
      const bool lost = text.find("persistentvolumeclaim") != std::string::npos && text.find("not found") != std::string::npos;
      return say(lost ? "ClaimNotFound" : pod.wait->reason == "Starting" ? "Fetching" : pod.wait->reason, "pod " + pod.name + " waits: " + text);
    }
    const auto answer = snapshot_.probes.find(pod.name);
    const auto progress = answer == snapshot_.probes.end() ? std::nullopt : fetch_progress(answer->second);
    if (progress) return say(progress->reason, progress->message);
    say("Fetching", "pod " + pod.name + " downloads " + spec_.source.hub->id);
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
  return {.verb = k8s::Verb::Get, .resource = k8s::PersistentVolumeClaims, .ns = owner.key.ns, .name = spec.source.claim};
}

Claim claim_of(const k8s::Response& response) {
  if (k8s::failed(response)) return {.found = k8s::error_of(response).failure != k8s::Failure::NotFound, .known = k8s::error_of(response).failure != k8s::Failure::Forbidden};
  Claim claim{.shareable = false, .writable = false, .cache_of = k8s::label_of(k8s::object_of(response), label::role) == "cache" ? k8s::label_of(k8s::object_of(response), label::name) : ""};
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

Fetching fetching_of(const Owner& owner, const Spec& spec, const Snapshot& snapshot, const Settings& settings, const StoredPlan& stored, const Json& map, const std::string& source,
                     const std::optional<Claim>& claim) {
  return Fetcher(owner, spec, snapshot, settings, stored, map, source, claim).run();
}

seconds pause_after(const std::string& reason) {
  if (reason == "SourceUnreachable") return seconds(30);                          // it has backed off itself before it gave up
  if (reason == "ChecksumMismatch") return seconds(1800);                         // each try may be hundreds of GiB
  if (reason == "RankLost" || reason == "NodeLost" || reason == "Interrupted") return seconds(10);
  return seconds(300);
}

bool fetches(const PodState& pod) {
  return pod.running_since && !pod.exit && !pod.deleting && !k8s::string_at(*pod.object, "/status/podIP").empty();
}

std::optional<Wait> fetch_progress(const Json& answer) {
  const auto bytes = [&](const char* pointer) { return std::clamp<int64_t>(integer_at(answer, pointer).value_or(0), 0, int64_t{1} << 50); };
  const std::string state = k8s::string_at(answer, "/state"), reason = k8s::string_at(answer, "/trouble/reason");
  if (state.empty()) return std::nullopt;
  const std::string amount = bytes("/totalBytes") > 0 ? bytes_text(bytes("/fetchedBytes")) + " of " + bytes_text(bytes("/totalBytes")) : "the hub is asked for the files";
  if (!reason.empty()) return Wait{reason_word(reason, "Fetching"), amount + "; " + clip(k8s::string_at(answer, "/trouble/message"), 1000) + "; it is tried again"};
  if (state == "Waiting") return Wait{"Fetching", amount + "; waits for the download of " + clip(k8s::string_at(answer, "/waitsFor"), 300) + " to the same claim"};
  return Wait{"Fetching", amount};
}

}  // namespace pm::op
