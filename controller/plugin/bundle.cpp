// SPDX-License-Identifier: Apache-2.0
#include "controller/plugin/bundle.h"

#include <fstream>

#include "controller/core/object.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/optional_children.h"
#include "controller/plugin/live_status.h"
#include "controller/plugin/model_report.h"

namespace pm::plugin {
namespace {

using k8s::Json;

class Bundle {
 public:
  Bundle(const Kubectl& kubectl, const std::filesystem::path& folder) : kubectl_(kubectl), folder_(folder) {
    if (!std::filesystem::create_directory(folder))
      throw std::filesystem::filesystem_error("the folder exists; name another with --output", folder,
                                              std::make_error_code(std::errc::file_exists));
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    ++files_;
  }
  /// Writes what kubectl prints; returns it, or "".
  std::string add(const std::string& name, const Kubectl::Arguments& arguments) {
    try {
      std::string text = kubectl_.output(arguments);
      write(name, text);
      return text;
    } catch (const KubectlFailed& error) {
      errors_ += name + ": " + error.what() + "\n";
      return "";
    }
  }
  int finish() {
    if (!errors_.empty()) write("errors.txt", errors_);
    return files_;
  }

 private:
  const Kubectl& kubectl_;
  const std::filesystem::path folder_;
  std::string errors_;
  int files_ = 0;
};

}  // namespace

int write_bundle(const Kubectl& kubectl, const std::string& model, const std::filesystem::path& folder) {
  const Json object = kubectl.json({"get", "parallelmodel", model});
  Bundle bundle(kubectl, folder);
  const std::string children = "parallelmodel.dev/name=" + model;
  bundle.write("parallelmodel.json", object.dump(2) + "\n");
  bundle.write("status.txt", status_text(object));
  const auto live = live_statuses(kubectl, object);
  bundle.write("ranks.txt", ranks_text(object, live));
  for (const auto& [pod, status] : live) bundle.write("status-" + pod + ".json", status.dump(2) + "\n");
  for (const char* kind : {"configmaps", "services", "persistentvolumeclaims", "poddisruptionbudgets"})
    bundle.add(std::string(kind) + ".json", {"get", kind, "-l", children, "-o", "json"});
  for (const op::OptionalChild& child : op::optional_children()) {
    if (!op::bool_at(object, "/status/" + std::string(child.status))) continue;
    const std::string kind = child.resource.plural + "." + child.resource.group;
    bundle.add(child.resource.plural + ".json", {"get", kind, model, "-o", "json"});
  }
  if (const auto& templates = op::at(object, "/status/resourceClaimTemplates"); templates.is_array()) {
    bundle.add("resourceclaimtemplates.json", {"get", "resourceclaimtemplates", "-l", children, "-o", "json"});
    bundle.add("resourceclaims.json", {"get", "resourceclaims", "-o", "json"});  // those of its pods have no labels
  }
  bundle.add("events.txt", {"get", "events", "--sort-by=.metadata.creationTimestamp"});
  bundle.add("nodes.json", {"get", "nodes", "-o", "json"});
  bundle.add("version.txt", {"version"});
  const Json pods = Json::parse(bundle.add("pods.json", {"get", "pods", "-l", children, "-o", "json"}), nullptr, false);
  for (const Json& pod : op::at(pods, "/items")) {
    const std::string name = k8s::key_of(pod).name;
    bundle.add("log-" + name + ".txt", {"logs", name, "--timestamps", "--tail=20000"});
  }
  return bundle.finish();
}

}  // namespace pm::plugin
