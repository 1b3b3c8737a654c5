// A policy and a checkpoint become a Model.
#include <algorithm>
#include <fstream>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/document.h"
#include "worker/policy/facts.h"

namespace pm::policy {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& reason, const std::string& message) { throw Error(ErrorKind::Model, reason, message); }

std::vector<std::string> texts_of(const Node* node) {
  std::vector<std::string> all;
  if (node && node->is_scalar()) all.push_back(node->text);
  if (node) for (const Node& item : node->items) all.push_back(item.text);
  return all;
}

/// config.json's model_type; quantised checkpoints are refused here, before any name is looked up.
std::string model_type_of(const checkpoint::Checkpoint& checkpoint) {
  const json& config = checkpoint.config();
  if (auto found = config.find("quantization_config"); found != config.end() && !found->is_null()) {
    const std::string method = found->is_object() && found->contains("quant_method") ? (*found)["quant_method"].dump() : "of unknown method";
    refuse("ModelUnreadable", (checkpoint.folder() / "config.json").string() + " has a quantization_config (" + method +
                                  "): quantised checkpoints are not served; give the checkpoint that it was made from");
  }
  auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    refuse("ModelUnreadable", (checkpoint.folder() / "config.json").string() + " has no \"model_type\"; transformers >= 2.3 writes it");
  }
  return type->get<std::string>();
}

struct Architecture {
  std::string name, task;
  std::vector<std::string> heads, stacks;
};

/// config.json's first class, or the policy's first when config.json names none.
Architecture architecture_of(const checkpoint::Checkpoint& checkpoint, const Node& policy) {
  const Node& table = *policy.get("architectures");
  const json& config = checkpoint.config();
  std::string name = table.entries.empty() ? "" : table.entries[0].first.text;
  if (auto listed = config.find("architectures"); listed != config.end() && listed->is_array() && !listed->empty() && (*listed)[0].is_string()) {
    name = (*listed)[0].get<std::string>();
  }
  const Node* found = table.get(name);
  if (!found) {
    std::string all;
    for (const auto& entry : table.entries) all += (all.empty() ? "" : ", ") + entry.first.text;
    refuse("UnknownArchitecture", "config.json says architecture \"" + name + "\", the policy " + (policy.file ? *policy.file : "") + " knows " + all);
  }
  Architecture architecture{name, found->get("task")->text, texts_of(found->get("heads")), texts_of(found->get("stacks"))};
  if (architecture.stacks.empty()) {
    for (const auto& entry : policy.get("stacks")->entries) architecture.stacks.push_back(entry.first.text);
  }
  return architecture;
}

void check_refusals(const Node& policy, const Scope& scope) {
  const Node* refusals = policy.get("refuse");
  if (!refusals) return;
  for (const auto& [condition, message] : refusals->entries) {
    if (evaluate_bool(condition, scope)) refuse("UnknownArchitecture", message.text + " (" + condition.where() + ": " + condition.text + ")");
  }
}

/// Token ids that end a text: an id or a list of them, from generation_config.json or else config.json.
std::vector<int64_t> eos_of(const checkpoint::Checkpoint& checkpoint) {
  auto ids = [](const json& config) {
    std::vector<int64_t> all;
    auto found = config.is_object() ? config.find("eos_token_id") : config.end();
    if (!config.is_object() || found == config.end()) return all;
    if (found->is_number_integer()) all.push_back(found->get<int64_t>());
    if (found->is_array()) for (const json& id : *found) if (id.is_number_integer()) all.push_back(id.get<int64_t>());
    return all;
  };
  std::ifstream file(checkpoint.folder() / "generation_config.json");
  const json generation = file ? json::parse(file, nullptr, false) : json();
  const std::vector<int64_t> preferred = ids(generation);
  return preferred.empty() ? ids(checkpoint.config()) : preferred;
}

bool contains(const std::vector<std::string>& list, const std::string& item) { return std::find(list.begin(), list.end(), item) != list.end(); }

/// Notes the names of stacks and heads that this architecture does not load, so that they count as known.
void rehearse_rest(const Node& policy, const Architecture& architecture, const std::string& last_stack, Builder& builder, Binder& binder) {
  binder.rehearse(true);
  auto quietly = [](auto body) {
    // what is not loaded may lack its keys in config.json
    try { body(); } catch (const Error& error) { if (error.reason == "UnsupportedPolicy") throw; }
  };
  for (const auto& [name, section] : policy.get("stacks")->entries)
    if (!contains(architecture.stacks, name.text)) quietly([&, &n = name.text, &s = section] { builder.stack(n, s); });
  if (const Node* heads = policy.get("heads")) {
    for (const auto& [name, section] : heads->entries)
      if (!contains(architecture.heads, name.text)) quietly([&, &n = name.text, &s = section] { builder.head(n, s, last_stack); });
  }
  binder.rehearse(false);
}

}  // namespace

Model resolve(const checkpoint::Checkpoint& checkpoint, const std::filesystem::path& policy_file) {
  Model model;
  model.model_type = model_type_of(checkpoint);
  const Node policy = policy_file.empty() ? builtin_policy(model.model_type) : load_policy(policy_file);
  if (const auto types = model_types(policy); !contains(types, model.model_type)) {
    refuse("UnknownArchitecture", "config.json says model_type \"" + model.model_type + "\", the policy " + (policy.file ? *policy.file : "") + " is for \"" +
                                      types.front() + "\"");
  }
  const Architecture architecture = architecture_of(checkpoint, policy);
  model.architecture = architecture.name;
  model.task = architecture.task;
  model.eos = eos_of(checkpoint);
  model.topology = policy.get("topology")->text;
  Binder binder(checkpoint, policy);
  Builder builder(checkpoint, policy, binder, model);
  check_refusals(policy, builder.scope());
  for (const auto& [name, section] : policy.get("stacks")->entries) {
    if (!contains(architecture.stacks, name.text)) continue;
    if (auto stack = builder.stack(name.text, section)) model.stacks.push_back(std::move(*stack));
  }
  if (model.stacks.empty()) refuse("UnsupportedPolicy", (policy.file ? *policy.file : "") + ": no stack of " + model.architecture + " is switched on");
  const std::string last_stack = model.stacks.back().name;
  for (const std::string& name : architecture.heads) model.heads.push_back(builder.head(name, *policy.get("heads")->get(name), last_stack));
  rehearse_rest(policy, architecture, last_stack, builder, binder);
  model.not_loaded = binder.finish();
  model.facts = facts_of(model);
  return model;
}

}  // namespace pm::policy
