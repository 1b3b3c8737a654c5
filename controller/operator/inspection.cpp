#include "controller/operator/inspection.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "controller/operator/names.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

/// Reasons of `inspect` that the condition table has; others become InspectFailed.
std::string known_reason(const std::string& reason) {
  static const std::array known{"ModelUnreadable", "UnknownArchitecture", "UnsupportedPolicy", "SourceUnreachable", "RevisionNotFound", "AuthFailed"};
  return std::find(known.begin(), known.end(), reason) != known.end() ? reason : "InspectFailed";
}

std::string termination_message(const Json& pod) {
  const Json& statuses = at(pod, "/status/containerStatuses");
  if (!statuses.is_array()) return {};
  for (const Json& status : statuses) {
    if (k8s::string_at(status, "/name") == container_name) return k8s::string_at(status, "/state/terminated/message");
  }
  return {};
}

void read_facts(Inspection& out, const PodState& pod) {
  const Json words = Json::parse(termination_message(*pod.object), nullptr, false);
  try {
    if (!words.is_object()) throw std::invalid_argument("the termination message is not a JSON object");
    out.facts = facts_from_json(words);
  } catch (const std::exception& error) {
    out.failed = true;
    out.reason = "InspectFailed";
    out.message = clip(std::string("the facts of the inspect pod cannot be read: ") + error.what(), 1000);
  }
}

}  // namespace

Inspection inspection_of(const PodState& pod) {
  Inspection out;
  if (pod.exit) {
    out.finished = pod.exit->at;
    if (pod.exit->code == 0) {
      read_facts(out, pod);
      return out;
    }
    out.failed = true;
    out.reason = known_reason(pod.exit->reason);
    out.message = clip((out.reason == "InspectFailed" && pod.exit->reason != "RankLost" ? pod.exit->reason + ": " : "") + pod.exit->message, 1500);
    return out;
  }
  out.reason = "Inspecting";
  out.message = "pod " + pod.name + " reads the checkpoint";
  if (pod.wait) {
    out.wait = pod.wait;
    out.message = "pod " + pod.name + " waits: " + pod.wait->message;
    const std::string& text = pod.wait->message;
    if (pod.wait->reason == "Unschedulable" && text.find("persistentvolumeclaim") != std::string::npos && text.find("not found") != std::string::npos) {
      out.reason = "ClaimNotFound";
      out.message = clip(text, 1000);
    }
  }
  return out;
}

}  // namespace pm::op
