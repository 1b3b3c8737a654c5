// SPDX-License-Identifier: Apache-2.0
// Composites: an encoder and a decoder, each resolved by the policy of its own family, joined into one model.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/document.h"
#include "worker/policy/resolution.h"

namespace pm::policy {

namespace {

using nlohmann::json;

constexpr const char *encoder_name = "encoder", *decoder_name = "decoder";

/// A part of the composite: its section of config.json and its tensors, and the policy of its family.
struct Part {
  CheckpointView view;
  Node policy;
  std::string type;
  Variables variables;
  Model model;
};

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::UnknownArchitecture, message); }

/// Opens the part that `key` of `compose` names: "encoder" has config.json's section `encoder` and the tensors
/// `encoder.*`.
void open(Part& part, const Node& compose, const char* key) {
  const Node& section = *compose.get(key);
  const json& config = part.view.config;
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || type == config.end() || !type->is_string()) {
    throw Error(Reason::ModelUnreadable, "config.json has no section \"" + section.text +
                                             "\" with a \"model_type\", which " + section.where() + " needs");
  }
  part.type = type->get<std::string>();
  try {
    part.policy = builtin_policy(part.type);
  } catch (const Error& error) {
    throw Error(error.reason, "the section \"" + section.text + "\": " + error.what());
  }
  part.variables = {&config, {part.policy.get("let")}, std::nullopt};
  part.model.model_type = part.type;
}

CheckpointView view_of(const CheckpointView& whole, const Node& compose, const char* key) {
  static const json none;
  const std::string& section = compose.get(key)->text;
  const auto found = whole.config.find(section);
  return {
      .checkpoint = whole.checkpoint, .config = found == whole.config.end() ? none : *found, .prefix = section + "."};
}

std::string of_part(const Part& part, const char* key) {
  return std::string("the ") + key + " of config.json is of model_type \"" + part.type + "\"";
}

/// Returns what a stack reads, in the words of `reads`.
std::string reads_of(const Node& stack) {
  const Node* input = stack.get("input");
  if (input && input->get("patches")) return "images";
  return input && input->get("convolutions") ? "audio" : "tokens";
}

/// Returns the class that gives the states of the family's only stack: what transformers' AutoModel makes.
Architecture encoder_class(const Part& part, const std::string& reads) {
  const bool one_stack = !part.policy.get("compose") && part.policy.get("stacks")->entries.size() == 1;
  if (one_stack) {
    const std::string found = reads_of(part.policy.get("stacks")->entries[0].second);
    if (found != reads)
      refuse(of_part(part, encoder_name) + ", which reads " + found + "; this class needs an encoder that reads " +
             reads);
  }
  for (const auto& [name, row] : part.policy.get("architectures")->entries) {
    const Node *task = row.get("task"), *kind = row.get("kind");
    const std::string& word = (kind ? kind : part.policy.get("kind"))->text;
    const bool alone = word == to_string(ModelKind::Encoder) || word == to_string(ModelKind::Decoder) ||
                       word == to_string(ModelKind::Vision);
    if (one_stack && alone && task && task->text == to_string(Task::Embed) && !row.get("heads"))
      return architecture_of(name.text, part.policy, part.variables);
  }
  refuse(of_part(part, encoder_name) + ", which has no class that gives the states of one stack of layers");
}

/// Returns the class that generates without an encoder: what transformers' AutoModelForCausalLM makes.
Architecture decoder_class(const Part& part) {
  for (const auto& [name, row] : part.policy.get("architectures")->entries) {
    const Node *task = row.get("task"), *kind = row.get("kind"), *refusal = row.get("refuse");
    const std::string& word = (kind ? kind : part.policy.get("kind"))->text;
    if (task && task->text == to_string(Task::Generate) && word == to_string(ModelKind::Decoder) &&
        !(refusal && refusal->is_scalar()))
      return architecture_of(name.text, part.policy, part.variables);
  }
  refuse(of_part(part, decoder_name) + ", which has no class that generates from left to right by itself");
}

/// Gives the only stack of a part its name in the composite.
void rename_stack(Model& part, const std::string& name) {
  const std::string before = part.stacks[0].name;
  const auto rename = [&](std::string& path) {
    if (path.starts_with(before + ".")) path.replace(0, before.size(), name);
  };
  for (const PlacedParam& placed : placed_params(part)) {
    auto& param = const_cast<Param&>(*placed.param);  // of `part`, which is mutable
    rename(param.path);
    rename(param.shares);
    if (param.stack == before) param.stack = name;
  }
  part.stacks[0].name = name;
  for (Head& head : part.heads)
    if (head.stack == before) head.stack = name;
}

void build_encoder(Part& part, const std::string& reads) {
  const Architecture architecture = encoder_class(part, reads);
  set_class(architecture, part.model);
  build(part.view, part.policy, architecture, std::nullopt, part.model);
  rename_stack(part.model, encoder_name);
  Output& output = part.model.stacks[0].output;
  if (output.projection) refuse(of_part(part, encoder_name) + ", and its states are projected after the last layer");
  if (!output.pooler) return;
  ParamCollector unread;  // no class of composites has an output of the pooler
  unread.add(output.pooler->norm);
  unread.add(output.pooler->dense);
  for (const Param* param : unread.params()) part.model.not_loaded.push_back(param->tensor->name);
  output.pooler.reset();
}

void build_decoder(Part& part, const OuterSource& source) {
  const Architecture architecture = decoder_class(part);
  set_class(architecture, part.model);
  build(part.view, part.policy, architecture, source, part.model);
  const bool known = part.policy.get("stacks")->get(part.model.stacks[0].name)->get("cross") != nullptr;
  for (const Layer& layer : part.model.stacks[0].layers) {
    if (layer.cross) continue;
    refuse(of_part(part, decoder_name) + ": " + architecture.name + " has no cross-attention" +
           (known ? "; expected add_cross_attention: true in that section" : ""));
  }
  rename_stack(part.model, decoder_name);
  // requests and transformers name the decoder's indices so, beside those of the encoder
  Input& input = part.model.stacks[0].input;
  for (IndexTable& table : input.tables) table.input = "decoder_" + table.input;
  if (!input.token_types.empty()) input.token_types = "decoder_" + input.token_types;
}

/// Binds the projection of the encoder's states to the decoder's width.
std::optional<Linear> cross_projection(const Binding& row, const Variables& variables, Binder& binder, int64_t out,
                                       int64_t in) {
  Scope scope;
  scope.stack = encoder_name;
  scope.variables = variables;
  ParamRequest request{.role = Role::HeadDenseWeight,
                       .path = std::string(encoder_name) + ".output.cross_projection.weight",
                       .shape = {out, in}};
  const std::optional<Param> weight = binder.bind(request, binder.names(*row.names(), scope, ".weight"), row, scope);
  request = {
      .role = Role::HeadDenseBias, .path = std::string(encoder_name) + ".output.cross_projection.bias", .shape = {out}};
  const std::optional<Param> bias = binder.bind(request, binder.names(*row.names(), scope, ".bias"), row, scope);
  return Linear{weight.value_or(Param{}), bias};
}

}  // namespace

Model resolve_composite(const CheckpointView& view, const Node& policy) {
  const Node& compose = *policy.get("compose");
  const Variables variables{&view.config, {policy.get("let")}, std::nullopt};
  Model model;
  set_class(architecture_of(class_of(view, policy), policy, variables), model);
  read_token_ids(view.checkpoint, policy, variables, model);

  Part encoder{.view = view_of(view, compose, encoder_name)}, decoder{.view = view_of(view, compose, decoder_name)};
  open(encoder, compose, encoder_name);
  open(decoder, compose, decoder_name);
  CheckpointView rest = view;
  rest.others = {encoder.view.prefix, decoder.view.prefix};
  Binder binder(rest, policy);
  const std::optional<Binding> projection = binder.binding(compose.get("projection"), variables);

  const Node* reads = compose.get("reads");
  build_encoder(encoder, reads ? reads->text : "tokens");
  const int64_t width = encoder.model.stacks[0].hidden;
  build_decoder(decoder, {.stack = encoder_name, .width = projection ? std::nullopt : std::optional(width)});
  const int64_t wanted = decoder.model.stacks[0].hidden;
  if (projection && width != wanted) {
    Output& output = encoder.model.stacks[0].output;
    output.cross_projection = cross_projection(*projection, variables, binder, wanted, width);
    const Node* states = compose.get("states");
    output.shows_projected = states && states->text == "projected";
  }

  model.not_loaded = binder.finish();
  for (Part* part : {&encoder, &decoder}) {
    model.stacks.push_back(std::move(part->model.stacks[0]));
    model.not_loaded.insert(model.not_loaded.end(), part->model.not_loaded.begin(), part->model.not_loaded.end());
  }
  model.heads = std::move(decoder.model.heads);
  std::sort(model.not_loaded.begin(), model.not_loaded.end());
  return model;
}

}  // namespace pm::policy
