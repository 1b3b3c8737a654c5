// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/resolve.h"

#include <algorithm>
#include <fstream>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/document.h"
#include "worker/policy/metadata.h"
#include "worker/policy/resolution.h"

namespace pm::policy {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(Reason reason, const std::string& message) { throw Error(reason, message); }

/// Returns config.json's model_type.
std::string model_type_of(const checkpoint::Checkpoint& checkpoint) {
  const json& config = checkpoint.config();
  auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    refuse(Reason::ModelUnreadable,
           (checkpoint.folder() / "config.json").string() + " has no \"model_type\"; transformers >= 2.3 writes it");
  }
  return type->get<std::string>();
}

}  // namespace

void check_refusals(const Node* refusals, const Variables& variables) {
  if (!refusals) return;
  for (const auto& [condition, message] : refusals->entries) {
    if (evaluate_bool(condition, variables))
      refuse(Reason::UnknownArchitecture, message.text + " (" + condition.where() + ": " + condition.text + ")");
  }
}

std::string class_of(const CheckpointView& view, const Node& policy) {
  const Node& table = *policy.get("architectures");
  std::string name = table.entries.empty() ? "" : table.entries[0].first.text;
  if (auto listed = view.config.find("architectures");
      listed != view.config.end() && listed->is_array() && !listed->empty() && (*listed)[0].is_string()) {
    name = (*listed)[0].get<std::string>();
  }
  return name;
}

Architecture architecture_of(std::string name, const Node& policy, const Variables& variables) {
  const Node& table = *policy.get("architectures");
  const Node* found = table.get(name);
  if (const Node* other = found ? found->get("alias_of") : nullptr) {
    name = other->text;
    found = table.get(name);
  }
  if (!found) {
    std::string all;
    for (const auto& [known, node] : table.entries) {
      if (node.get("task")) all += (all.empty() ? "" : ", ") + known.text;
    }
    refuse(Reason::UnknownArchitecture, "config.json says architecture \"" + name + "\", the policy " +
                                            (policy.file ? *policy.file : "") + " knows " + all);
  }
  const Node* refusal = found->get("refuse");
  if (refusal && refusal->is_scalar())
    refuse(Reason::UnknownArchitecture, name + " is not served: " + refusal->text + " (" + refusal->where() + ")");
  return described(std::move(name), *found, policy, variables);
}

Architecture described(std::string name, const Node& row, const Node& policy, const Variables& variables) {
  const Node* kind = row.get("kind");
  check_refusals(row.get("refuse"), variables);
  check_refusals(policy.get("refuse"), variables);
  Architecture architecture{std::move(name),
                            *parse<Task>(row.get("task")->text),
                            *parse<ModelKind>((kind ? kind : policy.get("kind"))->text),
                            texts_of(row.get("heads")),
                            texts_of(row.get("stacks")),
                            &row};
  if (const Node* stacks = policy.get("stacks"); stacks && architecture.stacks.empty()) {
    for (const auto& entry : stacks->entries) architecture.stacks.push_back(entry.first.text);
  }
  return architecture;
}

namespace {

/// Reads a token id or a list of them.
std::vector<int64_t> ids_of(const json& value) {
  std::vector<int64_t> all;
  if (value.is_number_integer()) all.push_back(value.get<int64_t>());
  if (value.is_array())
    for (const json& id : value)
      if (id.is_number_integer()) all.push_back(id.get<int64_t>());
  return all;
}

/// Returns the token ids under `key`: of generation_config.json for the task generate, else by the policy's
/// expression, else of config.json.
std::vector<int64_t> token_ids(const checkpoint::Checkpoint& checkpoint, bool generates, const Node* row,
                               const Variables& variables, const char* key) {
  auto under = [&](const json& config) {
    auto found = config.is_object() ? config.find(key) : config.end();
    return !config.is_object() || found == config.end() ? std::vector<int64_t>() : ids_of(*found);
  };
  std::ifstream file(checkpoint.folder() / "generation_config.json");
  const json generation = generates && file ? json::parse(file, nullptr, false) : json();
  if (std::vector<int64_t> preferred = under(generation); !preferred.empty()) return preferred;
  return row ? ids_of(evaluate(*row, variables, true)) : under(checkpoint.config());
}

/// Returns the token id that the decoder of an encoder-decoder starts with, or -1.
int64_t decoder_start_of(const checkpoint::Checkpoint& checkpoint, bool generates, const Node& policy,
                         const Variables& variables) {
  std::vector<int64_t> ids =
      token_ids(checkpoint, generates, policy.get("decoder_start"), variables, "decoder_start_token_id");
  if (ids.empty()) ids = token_ids(checkpoint, generates, nullptr, variables, "bos_token_id");
  return ids.empty() ? -1 : ids.front();
}

/// Returns a forced token id of generation_config.json, or of config.json when there is no such file, as transformers
/// does. -1: none.
int64_t forced_id(const checkpoint::Checkpoint& checkpoint, const char* key) {
  std::ifstream file(checkpoint.folder() / "generation_config.json");
  const json config = file ? json::parse(file, nullptr, false) : checkpoint.config();
  const auto found = config.is_object() ? config.find(key) : config.end();
  const std::vector<int64_t> ids =
      config.is_object() && found != config.end() ? ids_of(*found) : std::vector<int64_t>();
  return ids.empty() ? -1 : ids.front();
}

/// Checks that forced and start ids are rows of the token embedding.
void check_answer_ids(const Model& model) {
  const int64_t vocab = model.stacks.back().vocab;
  for (const auto& [name, id] :
       {std::pair{"decoder_start_token_id", model.decoder_start},
        {"forced_bos_token_id", model.forced_bos},
        {"forced_eos_token_id", model.forced_eos},
        {"the token that each step appends", model.recompute ? model.recompute->append : -1}}) {
    if (id < -1 || id >= vocab)
      refuse(Reason::ModelUnreadable, std::string(name) + " is " + std::to_string(id) + ", the vocabulary has " +
                                          std::to_string(vocab) + " tokens");
  }
}

/// Renames the outputs of heads as the class asks for.
void name_outputs(const Architecture& architecture, std::vector<Head>& heads) {
  const Node* outputs = architecture.node->get("outputs");
  for (Head& head : heads)
    if (const Node* own = outputs ? outputs->get(head.name) : nullptr) head.outputs = texts_of(own);
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Binds the stacks and heads that this architecture does not load in a dry run, so that their tensors count as
/// known.
void bind_unused(const Node& policy, const Architecture& architecture, const std::string& last_stack, Builder& builder,
                 Binder& binder) {
  binder.set_dry_run(true);
  auto quietly = [](auto body) {
    // a part that is not loaded may lack its keys in config.json
    try {
      body();
    } catch (const Error& error) {
      if (error.reason == Reason::UnsupportedPolicy) throw;
    }
  };
  for (const auto& [name, section] : policy.get("stacks")->entries)
    if (!contains(architecture.stacks, name.text)) quietly([&, &n = name.text, &s = section] { builder.stack(n, s); });
  if (const Node* heads = policy.get("heads")) {
    for (const auto& [name, section] : heads->entries)
      if (!contains(architecture.heads, name.text))
        quietly([&, &n = name.text, &s = section] { builder.head(n, s, last_stack); });
  }
  binder.set_dry_run(false);
}

/// Reads how a class generates without a KV cache; nothing where it does not.
std::optional<Recompute> read_recompute(const Node* section, const Variables& variables) {
  if (!section) return std::nullopt;
  if (const Node* when = section->get("when"); when && !evaluate_bool(*when, variables)) return std::nullopt;
  Recompute recompute;
  if (const Node* append = section->get("append")) recompute.append = evaluate_int(*append, variables);
  if (const Node* target = section->get("target")) recompute.target = evaluate_bool(*target, variables);
  if (const Node* overlap = section->get("overlap"); overlap && evaluate_bool(*overlap, variables)) {
    const Node* memory = section->get("memory");
    recompute.overlap = Recompute::Overlap{memory ? evaluate_int(*memory, variables) : 0};
  }
  return recompute;
}

/// Returns what the policy's expressions read: the section of config.json that the policy names, with the classes and
/// the special ids of the whole one, which come first in transformers too; or the whole one where it has no such
/// section.
json readable_config(const checkpoint::Checkpoint& checkpoint, const Node* section) {
  const json& whole = checkpoint.config();
  const auto found = section ? whole.find(section->text) : whole.end();
  if (found == whole.end() || found->is_null()) return whole;
  if (!found->is_object())
    refuse(Reason::ModelUnreadable, (checkpoint.folder() / "config.json").string() + ": \"" + section->text + "\" is " +
                                        found->dump() + ", expected a section (" + section->where() + ")");
  json config = *found;
  for (const auto& [key, value] : whole.items())
    if (key == "architectures" || (key.ends_with("_token_id") && !value.is_null())) config[key] = value;
  return config;
}

/// Builds a model by one policy that describes its stacks.
Model resolve_alone(const CheckpointView& view, const Node& policy) {
  const Variables variables{&view.config, {policy.get("let")}, std::nullopt};
  Model model;
  model.model_type = view.checkpoint.config().at("model_type");
  const Architecture architecture = architecture_of(class_of(view, policy), policy, variables);
  set_class(architecture, model);
  model.recompute = read_recompute(architecture.node->get("recompute"), variables);
  read_token_ids(view.checkpoint, policy, variables, model);
  const std::optional<ImageTensors> images = find_image_tensors(view, policy);
  CheckpointView own = view;
  if (images) own.others = images->prefixes();
  build(own, policy, architecture, std::nullopt, model);
  if (images) add_image_tower(view, policy, *images, model);
  return model;
}

}  // namespace

void set_class(const Architecture& architecture, Model& model) {
  model.architecture = architecture.name;
  model.task = architecture.task;
  model.kind = architecture.kind;
  if (const Node* global = architecture.node->get("global_tokens"))
    model.global_tokens = *parse<GlobalTokens>(global->text);
}

void read_token_ids(const checkpoint::Checkpoint& checkpoint, const Node& policy, const Variables& variables,
                    Model& model) {
  const bool generates = model.generates();  // other heads use the end token of config.json
  model.eos = token_ids(checkpoint, generates, policy.get("eos"), variables, "eos_token_id");
  if (model.kind == ModelKind::EncoderDecoder)
    model.decoder_start = decoder_start_of(checkpoint, generates, policy, variables);
  if (const Node* shift_tokens = policy.get("shift_tokens"))
    model.shift_tokens = evaluate_bool(*shift_tokens, variables);
  if (const Node* separator = policy.get("separator")) model.separator = evaluate_int(*separator, variables);
  if (!generates) return;
  model.forced_bos = forced_id(checkpoint, "forced_bos_token_id");
  model.forced_eos = forced_id(checkpoint, "forced_eos_token_id");
}

void build(const CheckpointView& view, const Node& policy, const Architecture& architecture,
           const std::optional<OuterSource>& outer, Model& model) {
  Binder binder(view, policy);
  Builder builder(view, policy, binder, model, outer);
  for (const auto& [name, section] : policy.get("stacks")->entries) {
    if (!contains(architecture.stacks, name.text)) continue;
    if (auto stack = builder.stack(name.text, section)) model.stacks.push_back(std::move(*stack));
  }
  if (model.stacks.empty())
    refuse(Reason::UnsupportedPolicy,
           (policy.file ? *policy.file : "") + ": no stack of " + model.architecture + " is switched on");
  const std::string last_stack = model.stacks.back().name;
  for (const std::string& name : architecture.heads) {
    const Node &section = *policy.get("heads")->get(name), *when = section.get("when");
    if (!when || evaluate_bool(*when, builder.variables()))
      model.heads.push_back(builder.head(name, section, last_stack));
  }
  name_outputs(architecture, model.heads);
  bind_unused(policy, architecture, last_stack, builder, binder);
  model.not_loaded = binder.finish();
}

Model resolve_mtp(const checkpoint::Checkpoint& checkpoint, const std::filesystem::path& policy_file) {
  const std::string type = model_type_of(checkpoint);
  const Node policy = policy_file.empty() ? builtin_policy(type) : load_policy(policy_file);
  if (!policy.get("stacks"))
    refuse(Reason::ModelUnreadable, "a model of " + type + " has no module for multi-token prediction of its own");
  const json config = readable_config(checkpoint, policy.get("section"));
  const CheckpointView view{.checkpoint = checkpoint, .config = config, .prefix = ""};
  const Variables variables{&config, {policy.get("let")}, std::nullopt};
  Model model;
  model.model_type = type;
  const Architecture architecture = architecture_of(class_of(view, policy), policy, variables);
  set_class(architecture, model);
  read_token_ids(checkpoint, policy, variables, model);
  Binder binder(view, policy);
  Builder builder(view, policy, binder, model);
  const std::string& name = architecture.stacks.back();
  model.stacks.push_back(builder.mtp_module(name, *policy.get("stacks")->get(name)));
  for (const std::string& head : architecture.heads)
    model.heads.push_back(builder.head(head, *policy.get("heads")->get(head), name));
  model.not_loaded = binder.finish();
  mark_matrices(model);
  model.metadata = model_metadata(model);
  return model;
}

std::string reply_form_name(const checkpoint::Checkpoint& checkpoint, const std::filesystem::path& policy_file) {
  const Node policy = policy_file.empty() ? builtin_policy(model_type_of(checkpoint)) : load_policy(policy_file);
  const Node* replies = policy.get("replies");
  return replies ? replies->text : "";
}

Model resolve(const checkpoint::Checkpoint& checkpoint, const std::filesystem::path& policy_file) {
  const std::string type = model_type_of(checkpoint);
  const Node policy = policy_file.empty() ? builtin_policy(type) : load_policy(policy_file);
  if (const auto types = model_types(policy); !contains(types, type)) {
    refuse(Reason::UnknownArchitecture, "config.json says model_type \"" + type + "\", the policy " +
                                            (policy.file ? *policy.file : "") + " is for \"" + types.front() + "\"");
  }
  const json config = readable_config(checkpoint, policy.get("section"));
  const CheckpointView view{.checkpoint = checkpoint, .config = config, .prefix = ""};
  Model model = policy.get("compose")    ? resolve_composite(view, policy)
                : policy.get("retrieve") ? resolve_retrieval(view, policy)
                                         : resolve_alone(view, policy);
  model.model_type = type;
  if (model.generates()) check_answer_ids(model);
  mark_matrices(model);
  model.metadata = model_metadata(model);
  return model;
}

}  // namespace pm::policy
