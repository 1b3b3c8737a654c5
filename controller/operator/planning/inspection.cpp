// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/inspection.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

/// The reasons of `inspect` that the condition table has. Any other becomes InspectFailed.
std::string known_reason(const std::string& reason) {
  static constexpr std::array known{Reason::ModelUnreadable,   Reason::UnknownArchitecture, Reason::UnsupportedPolicy,
                                    Reason::SourceUnreachable, Reason::RevisionNotFound,    Reason::AuthFailed};
  const auto parsed = parse_reason(reason);
  return name_of(parsed && std::find(known.begin(), known.end(), *parsed) != known.end() ? *parsed
                                                                                         : Reason::InspectFailed);
}

std::string termination_message(const Json& pod) {
  const Json& statuses = at(pod, "/status/containerStatuses");
  if (!statuses.is_array()) return {};
  for (const Json& status : statuses) {
    if (k8s::string_at(status, "/name") == container_name) return k8s::string_at(status, "/state/terminated/message");
  }
  return {};
}

void read_metadata(Inspection& out, const PodState& pod) {
  const Json words = Json::parse(termination_message(*pod.object), nullptr, false);
  try {
    if (!words.is_object()) throw std::invalid_argument("the termination message is not a JSON object");
    out.metadata = metadata_from_json(words);
  } catch (const std::exception& error) {
    out.failed = true;
    out.reason = name_of(Reason::InspectFailed);
    out.message = clip(std::string("the model metadata of the inspect pod cannot be parsed: ") + error.what(), 1000);
  }
}

}  // namespace

Inspection parse_inspection(const PodState& pod) {
  Inspection out;
  if (pod.exit) {
    out.finished = pod.exit->at;
    if (pod.exit->code == 0) {
      read_metadata(out, pod);
      return out;
    }
    out.failed = true;
    out.reason = known_reason(pod.exit->reason);
    out.message = clip(
        (out.reason == Reason::InspectFailed && pod.exit->reason != Reason::RankLost ? pod.exit->reason + ": " : "") +
            pod.exit->message,
        1500);
    return out;
  }
  out.reason = name_of(Reason::Inspecting);
  out.message = "pod " + pod.name + " reads the checkpoint";
  if (pod.wait) {
    out.wait = pod.wait;
    out.message = "pod " + pod.name + " waits: " + pod.wait->message;
    const std::string& text = pod.wait->message;
    if (pod.wait->reason == Reason::Unschedulable && text.find("persistentvolumeclaim") != std::string::npos &&
        text.find("not found") != std::string::npos) {
      out.reason = name_of(Reason::ClaimNotFound);
      out.message = clip(text, 1000);
    }
  }
  return out;
}

}  // namespace pm::op
