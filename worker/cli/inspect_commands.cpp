// SPDX-License-Identifier: Apache-2.0
// The subcommands that load no weights: inspect, plan and families.
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "contract/termination.h"
#include "contract/worker_arguments.h"
#include "planner/plan_svg.h"
#include "worker/base/error.h"
#include "worker/cli/adapter_options.h"
#include "worker/cli/hub_options.h"
#include "worker/cli/options.h"
#include "worker/hub/remote.h"
#include "worker/policy/families.h"
#include "worker/policy/report.h"
#include "worker/policy/resolve.h"

namespace pm::cli {

namespace {

struct InspectOptions {
  std::string model, policy, termination_message;
  std::vector<std::string> named_adapters;  ///< NAME=FOLDER
  DrafterOptions drafter;                   ///< whose draft model is a folder or hf://ORG/NAME
  HubOptions hub;
  bool json = false;
};

/// Resolves a checkpoint folder, or a model on the hub without its weights, and calls `use` with it. Neither
/// outlives the call.
void with_model(const InspectOptions& options,
                const std::function<void(const checkpoint::Checkpoint&, const policy::Model&)>& use) {
  if (!hub::names_repository(options.model)) {
    const auto checkpoint = checkpoint::Checkpoint::open(options.model);
    return use(checkpoint, policy::resolve(checkpoint, options.policy));
  }
  constexpr std::chrono::seconds stall_timeout{60};
  hub::Client client(options.hub.access(), stall_timeout, {},
                     [](const hub::FetchError& error, std::chrono::milliseconds) {
                       std::cerr << error.reason << ": " << error.message << "\n";
                     });
  const hub::RemoteCheckpoint remote(client, hub::repository_of(options.model, options.hub.revision),
                                     std::filesystem::temp_directory_path());
  try {
    policy::Model model = policy::resolve(remote.checkpoint(), options.policy);
    model.metadata.revision = remote.commit();
    use(remote.checkpoint(), model);
  } catch (const Error& error) {
    throw remote.with_hub_name(error);
  }
}

/// Returns what the draft model of the options needs. Throws an error that begins with the flag for one that cannot
/// draft for this model. Tokenizers are compared where both models are folders.
DraftNeeds draft_needs_of(const InspectOptions& options, const policy::Model& model) {
  const std::string& name = options.drafter.draft_model;
  if (!hub::names_repository(name) && !hub::names_repository(options.model))
    return needs_of(open_draft_model(name, model, options.model)->model, name);
  std::optional<DraftNeeds> needs;
  const auto use = [&](const checkpoint::Checkpoint&, const policy::Model& draft) {
    check_drafts_for(draft, name, model);
    needs = needs_of(draft, name);
  };
  try {
    with_model({.model = name, .hub = {.token_file = options.hub.token_file}}, use);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(flag::draft_model.name)) throw;
    throw Error(error.reason, std::string(flag::draft_model.name) + " " + name + ": " + error.what());
  }
  return needs.value();
}

/// Returns the metadata of the model with the memory that the adapters and the drafter of the options need. Throws
/// Error{Usage} for an adapter that is not NAME=FOLDER, and Error{ModelUnreadable} for one that cannot be served with
/// this model.
ModelMetadata with_companions(const checkpoint::Checkpoint& checkpoint, const policy::Model& model,
                              const InspectOptions& inspected) {
  ModelMetadata metadata = model.metadata;
  inspected.drafter.check();
  if (!inspected.drafter.draft_model.empty()) metadata.draft = draft_needs_of(inspected, model);
  if (inspected.drafter.is_mtp()) metadata.draft = needs_of(mtp_module(checkpoint, inspected.policy, model), "");
  const std::vector<std::string>& named = inspected.named_adapters;
  if (named.empty()) return metadata;
  check_takes_adapters(model);
  ModelOptions options;
  for (const std::string& text : named) options.adapters.push_back(named_adapter(text).folder);
  options.max_adapters = static_cast<int64_t>(named.size());
  metadata.adapter_elements = adapter_elements(model, adapter_capacity(model, options));
  return metadata;
}

/// Writes the model metadata, or reason and message of an error, to the termination message, so that the controller
/// needs no logs.
int inspect(const InspectOptions& options) {
  const auto write_termination_message = [&](const std::string& message) {
    if (!options.termination_message.empty()) std::ofstream(options.termination_message) << message;
  };
  try {
    with_model(options, [&](const checkpoint::Checkpoint& checkpoint, const policy::Model& model) {
      const nlohmann::json metadata = to_json(with_companions(checkpoint, model, options));
      write_termination_message(metadata.dump());
      if (options.json)
        std::cout << metadata.dump() << "\n";
      else
        std::cout << policy::inspect_report(model);
    });
    return 0;
  } catch (const Error& error) {
    write_termination_message(to_text({.reason = name_of(error.reason), .message = error.what()}, max_refusal_bytes));
    throw;
  }
}

enum class PlanFormat { Text, Json, Svg };

int plan(const ModelOptions& options, const HubOptions& hub, PlanFormat format) {
  Decision decision;
  const InspectOptions inspected{
      .model = options.model, .policy = options.policy, .drafter = options.drafter, .hub = hub};
  with_model(inspected, [&](const checkpoint::Checkpoint& checkpoint, const policy::Model& model) {
    decision =
        decide(with_companions(checkpoint, model, inspected), detect_hardware(options), plan_constraints(options));
  });
  if (!decision.plan) {
    std::cerr << decision.refusal->reason << ": " << decision.refusal->message << "\n";
    for (const Rejected& rejected : decision.refusal->rejected) {
      std::cerr << "  not " << rejected.strategy << ": " << rejected.reason << ": " << rejected.message << "\n";
    }
    return exit_code(info_of(decision.refusal->reason).kind);
  }
  if (format == PlanFormat::Json)
    std::cout << to_json(*decision.plan).dump(2) << "\n";
  else
    std::cout << (format == PlanFormat::Svg ? plan_svg(*decision.plan) : describe(*decision.plan));
  return 0;
}

void families(bool json) {
  if (json) {
    std::cout << policy::families_json().dump() << "\n";
    return;
  }
  for (const policy::Family& family : policy::families()) {
    std::cout << std::left << std::setw(17) << family.name << to_string(family.kind) << "\n";
    for (const policy::FamilyClass& one : family.classes) {
      std::cout << "  " << std::left << std::setw(36) << one.name
                << (one.refusal.empty() ? std::string(to_string(*one.task)) : "refused: " + one.refusal) << "\n";
    }
  }
}

}  // namespace

void add_inspect(CLI::App& app, Program& program) {
  auto* subcommand =
      app.add_subcommand(subcommand::inspect, "Reads config.json and tensor headers and prints the model metadata");
  auto options = std::make_shared<InspectOptions>();
  subcommand
      ->add_option(flag::model.name, options->model,
                   "Folder of a Hugging Face checkpoint, or hf://ORG/NAME: then only its config and headers are read, "
                   "over the network")
      ->required();
  options->hub.add_to(*subcommand);
  subcommand->add_option(flag::policy.name, options->policy,
                         "Policy file (YAML) to use instead of the built-in policy");
  subcommand
      ->add_option(flag::adapter.name, options->named_adapters,
                   "NAME=FOLDER: a LoRA adapter that will be served beside the model. It is checked against the model, "
                   "and the metadata says what memory it needs; repeat it for several")
      ->allow_extra_args(false);
  options->drafter.add_to(*subcommand, "Folder or hf://ORG/NAME");
  subcommand->add_option(flag::termination_message.name, options->termination_message,
                         "Also write the model metadata, or the error, as JSON to this file");
  subcommand->add_flag("--json", options->json, "Print the metadata as JSON");
  subcommand->callback([options, &program] { program.code = inspect(*options); });
}

void add_plan(CLI::App& app, Program& program) {
  auto* subcommand = app.add_subcommand(
      "plan", "Prints the plan for the model: how it is sharded, why, and which strategies were rejected");
  auto options = std::make_shared<ModelOptions>();
  auto hub = std::make_shared<HubOptions>();
  auto format = std::make_shared<PlanFormat>(PlanFormat::Text);
  options->add_to(*subcommand);
  options->drafter.add_to(*subcommand);
  hub->add_to(*subcommand);
  subcommand->add_option("--devices", options->ranks, "The same as --ranks")->check(CLI::Range(1, 1024));
  CLI::Option* json = subcommand->add_flag_callback(
      "--json", [format] { *format = PlanFormat::Json; }, "Print the plan as JSON, for `serve --plan FILE`");
  subcommand->add_flag_callback(
                "--svg", [format] { *format = PlanFormat::Svg; }, "Print a drawing of the plan as SVG")
      ->excludes(json);
  subcommand->callback([options, hub, format, &program] { program.code = plan(*options, *hub, *format); });
}

void add_families(CLI::App& app, Program&) {
  auto* subcommand = app.add_subcommand(
      "families", "Lists the supported model families with the task of each class, and the classes that are refused");
  auto json = std::make_shared<bool>(false);
  subcommand->add_flag("--json", *json, "Print JSON");
  subcommand->callback([json] { families(*json); });
}

}  // namespace pm::cli
