// SPDX-License-Identifier: Apache-2.0
// The kubectl plugin: `kubectl pm status`, why, ranks, plan, logs, restart, bundle.
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "controller/core/object.h"
#include "controller/core/time.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/desired.h"
#include "controller/plugin/bundle.h"
#include "controller/plugin/dry_run.h"
#include "controller/plugin/kubectl.h"
#include "controller/plugin/live_status.h"
#include "controller/plugin/model_report.h"

namespace {

using namespace pm;
using k8s::Json;
using plugin::Kubectl;

struct Options {
  std::string context, kubeconfig, ns, name, file, metadata, output;
  int replica = -1;
  bool follow = false;

  Kubectl kubectl() const {
    Kubectl::Arguments global;
    for (const auto& [flag, value] :
         {std::pair{"--context", context}, std::pair{"--kubeconfig", kubeconfig}, std::pair{"--namespace", ns}}) {
      if (!value.empty()) global.push_back(std::string(flag) + "=" + value);
    }
    return Kubectl(std::move(global));
  }
};

/// Calls `print` with the named ParallelModel, or with each of the namespace.
template <class Print>
int for_models(const Options& options, Print print) {
  const Kubectl kubectl = options.kubectl();
  if (!options.name.empty()) {
    print(kubectl, kubectl.json({"get", "parallelmodel", options.name}));
    return 0;
  }
  const Json list = kubectl.json({"get", "parallelmodels"});
  bool first = true;
  for (const Json& model : op::at(list, "/items")) {
    if (!std::exchange(first, false)) std::cout << "\n";
    print(kubectl, model);
  }
  if (first) std::cerr << "no ParallelModel in this namespace; -n names another\n";
  return 0;
}

int status(const Options& options) {
  return for_models(options, [](const Kubectl&, const Json& model) { std::cout << plugin::status_text(model); });
}

int why(const Options& options) {
  return for_models(options, [](const Kubectl& kubectl, const Json& model) {
    const std::string hash = k8s::string_at(model, "/status/plan/planHash");
    std::optional<Plan> plan;
    if (!hash.empty())
      plan = op::stored_plan(kubectl.json({"get", "configmap", op::plan_name(k8s::key_of(model).name, hash)})).plan;
    std::cout << plugin::why_text(model, plan);
  });
}

int ranks(const Options& options) {
  return for_models(options, [](const Kubectl& kubectl, const Json& model) {
    std::cout << plugin::ranks_text(model, plugin::live_statuses(kubectl, model));
  });
}

ModelMetadata metadata_from_file(const std::string& path) {
  const Json value = Json::parse(std::ifstream(path), nullptr, false);
  if (value.is_discarded())
    throw std::invalid_argument(path + " is not JSON; make it by parallelmodel-worker inspect --model DIR --json");
  return metadata_from_json(value);
}

/// Reads a part of the API. Where kubectl cannot, it says why itself, and the plan goes without.
std::optional<Json> read(const Kubectl& kubectl, const k8s::Request& request) {
  try {
    Json object = Json::parse(kubectl.output({"get", "--raw", k8s::path_of(request)}), nullptr, false);
    return object.is_discarded() ? std::nullopt : std::optional(std::move(object));
  } catch (const plugin::KubectlFailed&) {
    return std::nullopt;
  }
}

int plan(const Options& options) {
  const Kubectl kubectl = options.kubectl();
  Json applied = kubectl.json({"apply", "--dry-run=server", "-f", options.file});
  if (!applied.contains("items")) applied = {{"items", {applied}}};
  std::vector<k8s::ObjectPtr> nodes;
  const Json all_nodes = kubectl.json({"get", "nodes"});
  for (const Json& node : op::at(all_nodes, "/items")) nodes.push_back(std::make_shared<const Json>(node));
  int found = 0, code = 0;
  for (const Json& model : applied["items"]) {
    if (k8s::string_at(model, "/kind") != "ParallelModel") continue;
    if (found++ > 0) std::cout << "\n";
    const std::string ns = "--namespace=" + k8s::key_of(model).ns;
    const auto metadata =
        !options.metadata.empty()
            ? std::optional(metadata_from_file(options.metadata))
            : plugin::known_metadata(model, kubectl.json({"get", "parallelmodels", ns}),
                                     kubectl.json({"get", "configmaps", ns, "-l", op::label::role + "=plan"}));
    if (!metadata)
      throw std::invalid_argument("no ParallelModel of namespace " + k8s::key_of(model).ns + " has read " +
                                  k8s::string_at(model, "/spec/model/source") +
                                  " yet; give --metadata FILE, the output of parallelmodel-worker inspect --model DIR "
                                  "--json");
    const plugin::DryRun result =
        plugin::dry_run(model, *metadata, nodes, [&](const k8s::Request& request) { return read(kubectl, request); });
    std::cout << k8s::to_string(k8s::key_of(model)) << "\n" << result.text;
    if (!result.fits) code = 1;
  }
  if (found == 0) throw std::invalid_argument(options.file + " has no ParallelModel");
  return code;
}

int logs(const Options& options) {
  std::string selector = op::label::name + "=" + options.name;
  if (options.replica >= 0) selector += "," + op::label::replica + "=" + std::to_string(options.replica);
  Kubectl::Arguments arguments{
      "logs", "-l", selector, "--prefix", "--timestamps", "--tail=-1", "--max-log-requests=64"};
  if (options.follow) arguments.push_back("--follow");
  options.kubectl().become(arguments);
}

int restart(const Options& options) {
  const std::string now = k8s::format_time(std::chrono::system_clock::now());
  const Json patch{{"metadata", {{"annotations", {{op::annotation::restarted_at, now}}}}}};
  std::cout << options.kubectl().output(
      {"patch", "parallelmodel", options.name, "--type=merge", "--patch", patch.dump()});
  return 0;
}

int bundle(const Options& options) {
  const std::string folder = options.output.empty() ? options.name + "-bundle" : options.output;
  const int files = plugin::write_bundle(options.kubectl(), options.name, folder);
  std::cout << files << " files in " << folder << "; they hold no Secret, but logs and names of nodes\n";
  return 0;
}

CLI::App* add(CLI::App& app, const char* name, const char* help, Options& options, int& code,
              int (*run)(const Options&)) {
  CLI::App* command = app.add_subcommand(name, help);
  command->callback([&options, &code, run] { code = run(options); });
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("ParallelModels on a cluster, in the words of their planner", "kubectl pm");
  Options options;
  int code = 0;
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", PM_VERSION);
  app.add_option("-n,--namespace", options.ns, "Namespace (default: that of the context)");
  app.add_option("--context", options.context, "Context of the kubeconfig");
  app.add_option("--kubeconfig", options.kubeconfig, "Kubeconfig (default: as kubectl finds it)");
  for (CLI::App* command :
       {add(app, "status", "The plan, the start, conditions, replicas and the last failure", options, code, status),
        add(app, "why", "Why the model has its layout, and what the planner rejected", options, code, why),
        add(app, "ranks", "Each rank: node, state, bytes as planned and as measured, progress", options, code, ranks)})
    command->add_option("NAME", options.name, "ParallelModel (default: all of the namespace)");
  CLI::App* planning =
      add(app, "plan", "Plans a manifest against the nodes of the cluster, and changes nothing", options, code, plan);
  planning->add_option("-f,--filename", options.file, "Manifest; - reads the standard input")->required();
  planning->add_option("--metadata", options.metadata,
                       "Output of parallelmodel-worker inspect --json (default: of a ParallelModel of the same "
                       "checkpoint)");
  CLI::App* logging = add(app, "logs", "The logs of all pods of the model", options, code, logs);
  logging->add_option("--replica", options.replica, "Of this replica only")->check(CLI::NonNegativeNumber);
  logging->add_flag("-f,--follow", options.follow, "Go on as they grow");
  CLI::App* collecting =
      add(app, "bundle", "Collects objects, Events, logs and statuses into a folder", options, code, bundle);
  collecting->add_option("-o,--output", options.output, "Folder (default: NAME-bundle)");
  for (CLI::App* command :
       {logging, collecting, add(app, "restart", "Replaces all replicas, as updates do", options, code, restart)})
    command->add_option("NAME", options.name, "ParallelModel")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const plugin::KubectlFailed& error) {
    std::cerr << "kubectl pm: " << error.what() << "\n";
    return error.code;
  } catch (const std::exception& error) {
    std::cerr << "kubectl pm: " << error.what() << "\n";
    return 1;
  }
  return code;
}
