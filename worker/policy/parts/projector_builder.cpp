// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/parts/projector_builder.h"

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// Builds one projector.
class Reader {
 public:
  Reader(Binder& binder, const Node& section, const Variables& variables, const Stack& stack, const std::string& path,
         std::optional<int64_t> number = std::nullopt)
      : binder_(binder), section_(section), stack_(stack), path_(stack.name + ".output." + path + ".") {
    scope_.stack = stack.name;
    scope_.variables = variables;
    scope_.variables.layer = number;
  }

  ImageProjector read(int64_t out) {
    ImageProjector made;
    if (const Node* pool = section_.get("pool")) made.pooled = evaluate_int(*pool, scope_.variables);
    if (const auto& grid = stack_.input.patch_grid) made.merged = grid->merge * grid->merge;
    if (const Node* order = section_.get("by_channel")) made.by_channel = evaluate_bool(*order, scope_.variables);
    if (const Node* merged = section_.get("norm_merged")) made.norm_merged = evaluate_bool(*merged, scope_.variables);
    int64_t in = stack_.width() * made.merged;
    made.norm = norm(made.norm_merged ? in : stack_.width());
    if (section_.get("merging")) {
      made.merging = linear("merging", stack_.width(), in);
      in = stack_.width();
    }
    const bool two = section_.get("last") != nullptr;
    made.first = linear("first", two ? -1 : out, in);
    if (const Node* act = section_.get("act")) made.activation = parse_enum<Activation>(*act, scope_.variables);
    if (two) made.last = linear("last", out, made.first.weight.shape.empty() ? -1 : made.first.weight.shape[0]);
    return made;
  }

 private:
  std::optional<Param> bind(const Binding& row, ParamRequest request, std::string_view suffix) {
    return binder_.bind(std::move(request), binder_.names(*row.names(), scope_, suffix), row, scope_);
  }

  std::optional<Norm> norm(int64_t width) {
    const std::optional<Binding> row = binder_.binding(section_.get("norm"), scope_.variables);
    if (!row) return std::nullopt;
    const Node *kind = row->option("kind"), *eps = row->option("eps");
    Norm made;
    if (kind) made.kind = norm_kind(parse_keyword(*kind, scope_.variables, norm_words));
    if (eps) made.eps = evaluate_number(*eps, scope_.variables);
    ParamRequest request{.role = Role::NormWeight, .path = path_ + "norm.weight", .shape = {width}};
    made.weight = bind(*row, request, ".weight");
    if (!is_layer_norm(made.kind)) return made;
    request.role = Role::NormBias;
    request.path = path_ + "norm.bias";
    made.bias = bind(*row, request, ".bias");
    return made;
  }

  Linear linear(const char* key, int64_t out, int64_t in) {
    const std::optional<Binding> row = binder_.binding(section_.get(key), scope_.variables);
    if (!row) return {};
    ParamRequest request{.role = Role::HeadDenseWeight, .path = path_ + key + ".weight", .shape = {out, in}};
    if (const Node* layout = row->option("layout"))
      request.conv1d = parse_keyword(*layout, scope_.variables, layout_words) == "conv1d";
    const std::optional<Param> weight = bind(*row, request, ".weight");
    const Node* bias = row->option("bias");
    if (bias && !evaluate_bool(*bias, scope_.variables)) return {weight.value_or(Param{}), {}};
    request = {.role = Role::HeadDenseBias, .path = path_ + key + ".bias", .shape = {out}};
    return {weight.value_or(Param{}), bind(*row, request, ".bias")};
  }

  Binder& binder_;
  const Node& section_;
  const Stack& stack_;
  const std::string path_;
  Scope scope_;
};

void finish(Binder& binder, std::vector<std::string>& not_loaded) {
  const std::vector<std::string> names = binder.finish();
  not_loaded.insert(not_loaded.end(), names.begin(), names.end());
}

}  // namespace

ImageProjector ProjectorBuilder::final(const CheckpointView& view, const Node& section,
                                       std::vector<std::string>& not_loaded) const {
  Binder binder(view, policy);
  ImageProjector made = Reader(binder, section, variables, stack, "image_projector").read(width);
  finish(binder, not_loaded);
  return made;
}

std::vector<DeepProjector> ProjectorBuilder::deep(const CheckpointView& view, const Node& section,
                                                  const std::vector<int64_t>& layers,
                                                  std::vector<std::string>& not_loaded) const {
  if (layers.back() >= static_cast<int64_t>(stack.layers.size()))
    throw Error(Reason::ModelUnreadable, section.where() + ": deepstack reads the states behind layer " +
                                             std::to_string(layers.back()) + " of a tower of " +
                                             std::to_string(stack.layers.size()) + " layers");
  Binder binder(view, policy);
  std::vector<DeepProjector> made;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    Reader reader(binder, section, variables, stack, "deep_projectors." + std::to_string(i), number);
    made.push_back({layers[i], reader.read(width)});
  }
  finish(binder, not_loaded);
  return made;
}

}  // namespace pm::policy
