// SPDX-License-Identifier: Apache-2.0
// Composites: an encoder and a decoder, each resolved by the policy of its own family, joined into one model.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/parts/composite_part.h"

namespace pm::policy {

namespace {

constexpr const char *encoder_name = "encoder", *decoder_name = "decoder";

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::UnknownArchitecture, message); }

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

void build_encoder(Part& part, const std::string& reads) {
  const Architecture architecture = encoder_class(part, reads);
  set_class(architecture, part.model);
  build(part.view, part.policy, architecture, std::nullopt, part.model);
  rename_stack(part.model, part.model.stacks[0].name, encoder_name);
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
  rename_stack(part.model, part.model.stacks[0].name, decoder_name);
  // requests and transformers name the decoder's indices so, beside those of the encoder
  Input& input = part.model.stacks[0].input;
  for (IndexTable& table : input.tables)
    if (!table.input.empty()) table.input = "decoder_" + table.input;
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

  const Node &encoder_section = *compose.get(encoder_name), &decoder_section = *compose.get(decoder_name);
  Part encoder{.view = view_of(view, encoder_section.text)}, decoder{.view = view_of(view, decoder_section.text)};
  open_part(encoder, encoder_section);
  open_part(decoder, decoder_section);
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
