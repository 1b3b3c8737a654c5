// SPDX-License-Identifier: Apache-2.0
#include "controller/plugin/model_report.h"

#include <vector>

#include "base/byte_size.h"
#include "base/transfer.h"
#include "contract/status_report.h"
#include "controller/core/object.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/replicas/startup.h"
#include "controller/plugin/table.h"

namespace pm::plugin {
namespace {

using k8s::Json;
using k8s::string_at;
using op::at;
using op::integer_at;

std::string number_at(const Json& object, std::string_view pointer) {
  const auto value = integer_at(object, pointer);
  return value ? std::to_string(*value) : "-";
}

const Json& list_at(const Json& object, std::string_view pointer) {
  static const Json none = Json::array();
  const Json& value = at(object, pointer);
  return value.is_array() ? value : none;
}

std::string joined(const Json& texts) {
  std::string out;
  for (const Json& text : texts) {
    if (text.is_string()) out += (out.empty() ? "" : ", ") + text.get<std::string>();
  }
  return out;
}

/// Returns "12.3 MiB" or "-".
std::string bytes_at(const Json& memory, std::string_view pointer) {
  const auto value = integer_at(memory, pointer);
  return value ? base::format_bytes(*value) : "-";
}

std::string total_of(const Json& memory) {
  if (!memory.is_object()) return "-";
  int64_t sum = 0;
  for (const char* part : {"/weights", "/kv", "/activations", "/communicator", "/runtime"})
    sum += integer_at(memory, part).value_or(0);
  return base::format_bytes(sum);
}

std::string replicas_table(const Json& status) {
  std::vector<std::vector<std::string>> rows{
      {"REPLICA", "GENERATION", "READY", "REASON", "RESTARTS", "STARTUP", "NODES"}};
  for (const Json& replica : list_at(status, "/replicaStatuses")) {
    const auto startup = op::startup_from_json(at(replica, "/startupSeconds"));
    rows.push_back({number_at(replica, "/index"), number_at(replica, "/replicaGeneration"),
                    op::bool_at(replica, "/ready") ? "yes" : "no", string_at(replica, "/reason"),
                    number_at(replica, "/restarts"), startup ? op::to_text(*startup) : "-",
                    joined(list_at(replica, "/nodes"))});
  }
  return rows.size() > 1 ? "\n" + table(rows) : "";
}

std::string failure_text(const Json& failure) {
  if (!failure.is_object()) return "";
  std::string out = "\nlast failure, " + string_at(failure, "/time") + ": replica " + number_at(failure, "/replica") +
                    ", generation " + number_at(failure, "/replicaGeneration");
  if (integer_at(failure, "/rank")) out += ", rank " + number_at(failure, "/rank");
  if (integer_at(failure, "/exitCode")) out += ", exit code " + number_at(failure, "/exitCode");
  return out + "\n  " + string_at(failure, "/reason") + ": " + string_at(failure, "/message") + "\n";
}

std::string rejected_text(const Json& rejected) {
  std::string out;
  for (const Json& one : rejected)
    out += "not " + string_at(one, "/strategy") + " (" + string_at(one, "/reason") +
           "): " + string_at(one, "/message") + "\n";
  return out;
}

/// Returns the row of a rank of status.replicaStatuses. `report` is what the rank says itself now, or null.
std::vector<std::string> rank_row(const Json& replica, const Json& rank, const RankReport* report) {
  const Json &planned = at(rank, "/predicted"), &measured = at(rank, "/measuredAtLoad");
  const bool loads = report && report->load_total > 0 && report->state == "Loading";
  const double seconds = report ? report->load_seconds.value_or(0) : 0;
  std::string progress = "-";
  if (loads)
    progress = base::to_text(
        {report->load_bytes, report->load_total, seconds > 0 ? static_cast<double>(report->load_bytes) / seconds : 0});
  else if (report)
    progress = std::to_string(report->steps) + " steps";
  return {number_at(replica, "/index"),
          number_at(rank, "/rank"),
          string_at(rank, "/node"),
          report ? report->state : string_at(replica, "/reason"),
          bytes_at(planned, "/weights"),
          bytes_at(measured, "/weights"),
          total_of(planned),
          total_of(measured),
          bytes_at(rank, "/total"),
          progress};
}

}  // namespace

std::string first_pod(const std::string& model, const Json& replica) {
  const auto index = integer_at(replica, "/index"), generation = integer_at(replica, "/replicaGeneration");
  if (!index || !generation) return "";
  return op::replica_pod_name(model, static_cast<int>(*index), 0, *generation);
}

std::string status_text(const Json& model) {
  const Json& status = at(model, "/status");
  std::string out = "ParallelModel " + k8s::to_string(k8s::key_of(model)) + ", " + number_at(status, "/readyReplicas") +
                    " of " + number_at(model, "/spec/replicas") +
                    " replicas ready\n  source:   " + string_at(model, "/spec/model/source");
  const std::string revision = string_at(status, "/plan/revision"), endpoint = string_at(status, "/endpoint"),
                    startup = string_at(status, "/startup");
  if (!revision.empty()) out += " at " + revision;
  out += "\n  plan:     " + string_at(status, "/plan/reason") + ": " + string_at(status, "/plan/message") + "\n";
  if (!endpoint.empty()) out += "  endpoint: " + endpoint + "\n";
  if (!startup.empty()) out += "  startup:  " + startup + "\n";
  if (const auto fetched = integer_at(status, "/fetchSeconds"))
    out += "  fetched:  in " + base::format_duration(static_cast<double>(*fetched)) + "\n";
  std::vector<std::vector<std::string>> rows{{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}};
  for (const Json& condition : list_at(status, "/conditions"))
    rows.push_back({string_at(condition, "/type"), string_at(condition, "/status"),
                    string_at(condition, "/lastTransitionTime"), string_at(condition, "/reason"),
                    string_at(condition, "/type") == "Planned" ? "" : string_at(condition, "/message")});
  if (rows.size() == 1) return out + "\nit has no conditions: does the controller run, and watch this namespace?\n";
  return out + "\n" + table(rows) + replicas_table(status) + failure_text(at(status, "/lastFailure"));
}

std::string why_text(const Json& model, const std::optional<Plan>& plan) {
  if (plan) return describe(*plan);
  const Json& status = at(model, "/status/plan");
  const std::string reason = string_at(status, "/reason");
  if (reason.empty()) return status_text(model);
  return reason + ": " + string_at(status, "/message") + "\n" + rejected_text(list_at(status, "/rejected"));
}

std::string ranks_text(const Json& model, const std::map<std::string, Json>& live) {
  std::vector<std::vector<std::string>> rows{
      {"REPLICA", "RANK", "NODE", "STATE", "WEIGHTS", "MEASURED", "TOTAL", "MEASURED", "DEVICE", "PROGRESS"}};
  const std::string name = k8s::key_of(model).name;
  for (const Json& replica : list_at(model, "/status/replicaStatuses")) {
    const auto answer = live.find(first_pod(name, replica));
    const auto report = answer == live.end() ? std::nullopt : status_report_from_json(answer->second);
    for (const Json& rank : list_at(replica, "/ranks")) {
      const RankReport* own = nullptr;
      if (report) {
        for (const RankReport& entry : report->ranks) {
          if (entry.rank == integer_at(rank, "/rank")) own = &entry;
        }
      }
      rows.push_back(rank_row(replica, rank, own));
    }
  }
  if (rows.size() == 1)
    return "no ranks are recorded: " + string_at(model, "/status/plan/reason") +
           "; status lists ranks once the pods of a replica exist, up to 512 of them\n";
  return table(rows);
}

}  // namespace pm::plugin
