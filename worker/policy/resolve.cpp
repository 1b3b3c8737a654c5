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
  std::string name, task, topology;
  std::vector<std::string> heads, stacks;
  const Node* node = nullptr;
};

void check_refusals(const Node* refusals, const Scope& scope) {
  if (!refusals) return;
  for (const auto& [condition, message] : refusals->entries) {
    if (evaluate_bool(condition, scope)) refuse("UnknownArchitecture", message.text + " (" + condition.where() + ": " + condition.text + ")");
  }
}

/// config.json's first class, or the policy's first when config.json names none.
Architecture architecture_of(const checkpoint::Checkpoint& checkpoint, const Node& policy, const Scope& scope) {
  const Node& table = *policy.get("architectures");
  const json& config = checkpoint.config();
  std::string name = table.entries.empty() ? "" : table.entries[0].first.text;
  if (auto listed = config.find("architectures"); listed != config.end() && listed->is_array() && !listed->empty() && (*listed)[0].is_string()) {
    name = (*listed)[0].get<std::string>();
  }
  const Node* found = table.get(name);
  if (const Node* other = found ? found->get("as") : nullptr) {
    name = other->text;
    found = table.get(name);
  }
  if (!found) {
    std::string all;
    for (const auto& [known, node] : table.entries) {
      if (node.get("task")) all += (all.empty() ? "" : ", ") + known.text;
    }
    refuse("UnknownArchitecture", "config.json says architecture \"" + name + "\", the policy " + (policy.file ? *policy.file : "") + " knows " + all);
  }
  const Node *refusal = found->get("refuse"), *topology = found->get("topology");
  if (refusal && refusal->is_scalar()) refuse("UnknownArchitecture", name + " is not served: " + refusal->text + " (" + refusal->where() + ")");
  check_refusals(refusal, scope);
  Architecture architecture{name, found->get("task")->text, (topology ? topology : policy.get("topology"))->text, texts_of(found->get("heads")),
                            texts_of(found->get("stacks")), found};
  if (architecture.stacks.empty()) {
    for (const auto& entry : policy.get("stacks")->entries) architecture.stacks.push_back(entry.first.text);
  }
  return architecture;
}

/// A token id or a list of them.
std::vector<int64_t> ids_of(const json& value) {
  std::vector<int64_t> all;
  if (value.is_number_integer()) all.push_back(value.get<int64_t>());
  if (value.is_array()) for (const json& id : value) if (id.is_number_integer()) all.push_back(id.get<int64_t>());
  return all;
}

/// Token ids under `key`: of generation_config.json where text is generated, else what the policy's row of that name says, else of config.json.
std::vector<int64_t> token_ids(const checkpoint::Checkpoint& checkpoint, bool generates, const Node* row, const Scope& scope, const char* key) {
  auto under = [&](const json& config) {
    auto found = config.is_object() ? config.find(key) : config.end();
    return !config.is_object() || found == config.end() ? std::vector<int64_t>() : ids_of(*found);
  };
  std::ifstream file(checkpoint.folder() / "generation_config.json");
  const json generation = generates && file ? json::parse(file, nullptr, false) : json();
  if (std::vector<int64_t> preferred = under(generation); !preferred.empty()) return preferred;
  return row ? ids_of(evaluate(*row, scope, true)) : under(checkpoint.config());
}

/// The id that begins an answer of an encoder-decoder.
int64_t decoder_start_of(const checkpoint::Checkpoint& checkpoint, bool generates, const Node& policy, const Scope& scope) {
  std::vector<int64_t> ids = token_ids(checkpoint, generates, policy.get("decoder_start"), scope, "decoder_start_token_id");
  if (ids.empty()) ids = token_ids(checkpoint, generates, nullptr, scope, "bos_token_id");
  return ids.empty() ? -1 : ids.front();
}

/// An id that has to come at one place of an answer: of generation_config.json where there is one, else of config.json, as transformers
/// does. -1: none.
int64_t forced_id(const checkpoint::Checkpoint& checkpoint, const char* key) {
  std::ifstream file(checkpoint.folder() / "generation_config.json");
  const json config = file ? json::parse(file, nullptr, false) : checkpoint.config();
  const auto found = config.is_object() ? config.find(key) : config.end();
  const std::vector<int64_t> ids = config.is_object() && found != config.end() ? ids_of(*found) : std::vector<int64_t>();
  return ids.empty() ? -1 : ids.front();
}

/// Ids that come into answers without being scored have to be rows of the token table.
void check_answer_ids(const Model& model) {
  const int64_t vocab = model.stacks.back().vocab;
  for (const auto& [name, id] : {std::pair{"decoder_start_token_id", model.decoder_start}, {"forced_bos_token_id", model.forced_bos}, {"forced_eos_token_id", model.forced_eos}}) {
    if (id < -1 || id >= vocab) refuse("ModelUnreadable", std::string(name) + " is " + std::to_string(id) + ", the vocabulary has " + std::to_string(vocab) + " tokens");
  }
}

/// The class's own names for what its heads put out.
void name_outputs(const Architecture& architecture, std::vector<Head>& heads) {
  const Node* outputs = architecture.node->get("outputs");
  for (Head& head : heads)
    if (const Node* own = outputs ? outputs->get(head.name) : nullptr) head.outputs = texts_of(own);
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
  Binder binder(checkpoint, policy);
  Builder builder(checkpoint, policy, binder, model);
  const Architecture architecture = architecture_of(checkpoint, policy, builder.scope());
  check_refusals(policy.get("refuse"), builder.scope());
  model.architecture = architecture.name;
  model.task = architecture.task;
  model.topology = architecture.topology;
  const bool generates = model.task == "generate";   // other heads look for the end token of config.json, whatever ends a text
  model.eos = token_ids(checkpoint, generates, policy.get("eos"), builder.scope(), "eos_token_id");
  if (model.topology == "encoder-decoder") model.decoder_start = decoder_start_of(checkpoint, generates, policy, builder.scope());
  if (const Node* wraps = policy.get("wraps")) model.wraps = evaluate_bool(*wraps, builder.scope());
  if (generates) {
    model.forced_bos = forced_id(checkpoint, "forced_bos_token_id");
    model.forced_eos = forced_id(checkpoint, "forced_eos_token_id");
  }
  for (const auto& [name, section] : policy.get("stacks")->entries) {
    if (!contains(architecture.stacks, name.text)) continue;
    if (auto stack = builder.stack(name.text, section)) model.stacks.push_back(std::move(*stack));
  }
  if (model.stacks.empty()) refuse("UnsupportedPolicy", (policy.file ? *policy.file : "") + ": no stack of " + model.architecture + " is switched on");
  if (generates) check_answer_ids(model);
  const std::string last_stack = model.stacks.back().name;
  for (const std::string& name : architecture.heads) {
    const Node &section = *policy.get("heads")->get(name), *when = section.get("when");
    if (!when || evaluate_bool(*when, builder.scope())) model.heads.push_back(builder.head(name, section, last_stack));
  }
  name_outputs(architecture, model.heads);
  rehearse_rest(policy, architecture, last_stack, builder, binder);
  model.not_loaded = binder.finish();
  mark_matrices(model);
  model.facts = facts_of(model);
  return model;
}

}  // namespace pm::policy
