// The verbs that load nothing: inspect, plan, families.
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/hub.h"
#include "worker/cli/options.h"
#include "worker/hub/remote.h"
#include "worker/policy/report.h"

namespace pm::cli {

namespace {

struct InspectOptions { std::string model, policy, termination_message; HubOptions hub; bool json = false; };

/// Resolves a folder, or a model on the hub without its weights; what `use` gets does not outlive the call.
void look_at(const InspectOptions& options, const std::function<void(const policy::Model&)>& use) {
  if (!hub::names_repository(options.model)) {
    const auto checkpoint = checkpoint::Checkpoint::open(options.model);
    return use(policy::resolve(checkpoint, options.policy));
  }
  constexpr std::chrono::seconds patience{60};
  hub::Client client(options.hub.access(), patience, {}, [](const hub::Trouble& trouble, std::chrono::milliseconds) { std::cerr << trouble.reason << ": " << trouble.message << "\n"; });
  const hub::RemoteCheckpoint remote(client, hub::repository_of(options.model, options.hub.revision), std::filesystem::temp_directory_path());
  try {
    policy::Model model = policy::resolve(remote.checkpoint(), options.policy);
    model.facts.revision = remote.commit();
    use(model);
  } catch (const Error& error) {
    throw remote.in_its_words(error);
  }
}

/// Facts on success; reason and message on failure, so that the controller learns both without reading logs.
int inspect(const InspectOptions& options) {
  const auto tell = [&](const nlohmann::json& message) {
    if (!options.termination_message.empty()) std::ofstream(options.termination_message) << message.dump();
  };
  try {
    look_at(options, [&](const policy::Model& model) {
      const nlohmann::json facts = to_json(model.facts);
      tell(facts);
      if (options.json) std::cout << facts.dump() << "\n";
      else std::cout << policy::inspect_report(model);
    });
    return 0;
  } catch (const Error& error) {
    tell({{"reason", error.reason}, {"message", std::string(error.what()).substr(0, 2048)}});
    throw;
  }
}

int plan(const ModelOptions& options, const HubOptions& hub, bool json) {
  Decision decision;
  look_at({.model = options.model, .policy = options.policy, .hub = hub}, [&](const policy::Model& model) { decision = decide(model.facts, hardware_of(options), wishes_of(options)); });
  if (!decision.plan) {
    std::cerr << decision.refusal->reason << ": " << decision.refusal->message << "\n";
    for (const Rejected& rejected : decision.refusal->rejected) {
      std::cerr << "  not " << rejected.strategy << ": " << rejected.reason << ": " << rejected.message << "\n";
    }
    return exit_code(decision.refusal->reason == "DoesNotFit" ? ErrorKind::DoesNotFit : ErrorKind::Usage);
  }
  if (json) std::cout << to_json(*decision.plan).dump(2) << "\n";
  else std::cout << describe(*decision.plan);
  return 0;
}

void families(bool json) {
  if (json) {
    std::cout << policy::families_json().dump() << "\n";
    return;
  }
  for (const policy::Family& family : policy::families()) {
    std::cout << std::left << std::setw(12) << family.name << family.topology << "\n";
    for (const policy::FamilyClass& one : family.classes) {
      std::cout << "  " << std::left << std::setw(36) << one.name << (one.refusal.empty() ? one.task : "refused: " + one.refusal) << "\n";
    }
  }
}

}  // namespace

void add_inspect(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("inspect", "Reads config.json and tensor headers, prints what the model is made of (facts)");
  auto options = std::make_shared<InspectOptions>();
  verb->add_option("--model", options->model, "Folder of a Hugging Face checkpoint, or hf://ORG/NAME: then only its config and headers are read, over the network")->required();
  options->hub.add_to(*verb);
  verb->add_option("--policy", options->policy, "A policy file of your own instead of the built-in one");
  verb->add_option("--termination-message", options->termination_message, "Also write the facts, or why there are none, to this file");
  verb->add_flag("--json", options->json, "Facts as JSON");
  verb->callback([options, &program] { program.code = inspect(*options); });
}

void add_plan(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("plan", "Prints how the model would be cut, why, and what was rejected");
  auto options = std::make_shared<ModelOptions>();
  auto hub = std::make_shared<HubOptions>();
  auto json = std::make_shared<bool>(false);
  options->add_to(*verb);
  hub->add_to(*verb);
  verb->add_option("--devices", options->ranks, "The same as --ranks")->check(CLI::Range(1, 1024));
  verb->add_flag("--json", *json, "The plan as JSON; `serve --plan FILE` obeys it");
  verb->callback([options, hub, json, &program] { program.code = plan(*options, *hub, *json); });
}

void add_families(CLI::App& app, Program&) {
  auto* verb = app.add_subcommand("families", "Lists the model families: their classes with their tasks, and what is refused");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "As JSON");
  verb->callback([json] { families(*json); });
}

}  // namespace pm::cli
