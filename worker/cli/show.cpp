// The verbs that load nothing: inspect, plan, families.
#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/options.h"
#include "worker/policy/report.h"

namespace pm::cli {

namespace {

struct InspectOptions { std::string model, policy, termination_message; bool json = false; };

/// Facts on success; reason and message on failure, so that the controller learns both without reading logs.
int inspect(const InspectOptions& options) {
  const auto tell = [&](const nlohmann::json& message) {
    if (!options.termination_message.empty()) std::ofstream(options.termination_message) << message.dump();
  };
  try {
    const auto checkpoint = checkpoint::Checkpoint::open(options.model);
    const policy::Model model = policy::resolve(checkpoint, options.policy);
    const nlohmann::json facts = to_json(model.facts);
    tell(facts);
    if (options.json) std::cout << facts.dump() << "\n";
    else std::cout << policy::inspect_report(model);
    return 0;
  } catch (const Error& error) {
    tell({{"reason", error.reason}, {"message", std::string(error.what()).substr(0, 2048)}});
    throw;
  }
}

int plan(const ModelOptions& options, bool json) {
  const auto checkpoint = checkpoint::Checkpoint::open(options.model);
  const policy::Model model = policy::resolve(checkpoint, options.policy);
  const Decision decision = decide(model.facts, hardware_of(options), wishes_of(options));
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
  verb->add_option("--model", options->model, "Folder of a Hugging Face checkpoint")->required();
  verb->add_option("--policy", options->policy, "A policy file of your own instead of the built-in one");
  verb->add_option("--termination-message", options->termination_message, "Also write the facts, or why there are none, to this file");
  verb->add_flag("--json", options->json, "Facts as JSON");
  verb->callback([options, &program] { program.code = inspect(*options); });
}

void add_plan(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("plan", "Prints how the model would be cut, why, and what was rejected");
  auto options = std::make_shared<ModelOptions>();
  auto json = std::make_shared<bool>(false);
  options->add_to(*verb);
  verb->add_option("--devices", options->ranks, "The same as --ranks")->check(CLI::Range(1, 1024));
  verb->add_flag("--json", *json, "The plan as JSON; `serve --plan FILE` obeys it");
  verb->callback([options, json, &program] { program.code = plan(*options, *json); });
}

void add_families(CLI::App& app, Program&) {
  auto* verb = app.add_subcommand("families", "Lists the model families: their classes with their tasks, and what is refused");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "As JSON");
  verb->callback([json] { families(*json); });
}

}  // namespace pm::cli
