// SPDX-License-Identifier: Apache-2.0
// Builder: projections in groups, biases of fused parts, which keys a query sees, and what scores read of relative
// positions.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"
#include "worker/policy/roles.h"

namespace pm::policy {

namespace {

/// The maximum size of a window or a block, of the number of random blocks, and of a span of distances: products with
/// sizes stay below 2^63.
constexpr int64_t most = int64_t{1} << 20;

int64_t checked(const Node& node, const char* what, int64_t value, int64_t least) {
  if (value < least || value > most)
    throw Error(Reason::ModelUnreadable, node.where() + ": config.json gives " + what + " = " + std::to_string(value) +
                                             ", expected " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

/// Reads a number, or that of the layer from a list with one per layer.
int64_t of_layer(const Node& node, const Variables& variables) {
  const nlohmann::json value = evaluate(node, variables);
  const auto layer = static_cast<size_t>(variables.layer.value_or(0));
  const bool listed = value.is_array() && layer < value.size();
  const nlohmann::json& own = listed ? value[layer] : value;
  if (!own.is_number_integer())
    throw Error(Reason::ModelUnreadable, node.where() + ": config.json gives " + value.dump() + " for layer " +
                                             std::to_string(layer) + ", expected a number or one per layer");
  return own.get<int64_t>();
}

}  // namespace

std::optional<Linear> Builder::projection(const Context& context, const Node* node, const Node& block,
                                          const Scope& scope, ParamRequest weight, Role bias_role) {
  if (const Node* groups = node && node->is_map() ? node->get("groups") : nullptr) {
    const int64_t count = evaluate_int(*groups, scope.variables), out = weight.shape[0], in = weight.shape[1];
    if (count < 1 || out % count != 0 || in % count != 0)
      throw Error(Reason::ModelUnreadable, groups->where() + ": the number of groups is " + std::to_string(count) +
                                               " with this config.json, expected a divisor of " + std::to_string(in) +
                                               " inputs and " + std::to_string(out) + " outputs");
    weight.diagonal_blocks = count;
    weight.shape[sharding_rule(weight.role).dim == 1 ? 0 : 1] /= count;
  }
  return linear(context, node, &block, scope, weight, bias_role);
}

/// Binds the bias that one part of fused projections has as a tensor of its own (DeBERTa's q_bias and v_bias).
void Builder::bias_of_part(const Binding& row, int part, const ParamRequest& weight, Role role, const Scope& scope,
                           Linear& target) {
  const Node* own = row.option(std::string(part_words[static_cast<size_t>(part)]) + "_bias");
  if (!own) return;
  const ParamRequest request{.role = role,
                             .path = weight.path + ".bias",
                             .shape = {weight.shape[0]},
                             .units = weight.units,
                             .block = weight.block};
  target.bias = binder_.bind(request, binder_.names(*own, scope, ""), Binding{own}, scope);
}

/// Builds the projection of global tokens that corresponds to the role's.
Linear Builder::global_projection(const Context& context, const Node& section, const Node& window, const Scope& scope,
                                  const std::string& path, const Attention& a, Role role) {
  const bool query = role == Role::QueryWeight, key = role == Role::KeyWeight;
  const char* name = query ? "global_q" : key ? "global_k" : "global_v";
  if (!window.get(name)) refuse_policy(window, std::string("a sliding window needs \"") + name + "\"");
  const int64_t rows = (query ? a.heads : a.kv_heads) * a.head_dim;
  const ParamRequest request{.role = role,
                             .path = path + "." + name,
                             .shape = {rows, context.sizes.hidden},
                             .units = query ? a.heads : rows,
                             .block = query ? 1 : a.head_dim};
  const Role bias = query ? Role::QueryBias : key ? Role::KeyBias : Role::ValueBias;
  return linear(context, window.get(name), &section, scope, request, bias).value_or(Linear{});
}

Pattern Builder::pattern(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                         const Attention& a) {
  const Node *window = section.get("sliding_window"), *blocks = section.get("block_sparse");
  if (window && window->is_map()) {
    const Node* size = window->get("size");
    if (!size) refuse_policy(*window, "a sliding window needs \"size\"");
    SlidingWindow pattern;
    pattern.size = checked(*size, "a window of size", of_layer(*size, scope.variables), 2);
    if (pattern.size % 2)
      throw Error(Reason::ModelUnreadable, size->where() + ": config.json gives a window of " +
                                               std::to_string(pattern.size) +
                                               " tokens, expected an even number: half of it on each side");
    pattern.key = global_projection(context, section, *window, scope, path, a, Role::KeyWeight);
    pattern.value = global_projection(context, section, *window, scope, path, a, Role::ValueWeight);
    pattern.query = global_projection(context, section, *window, scope, path, a, Role::QueryWeight);
    return pattern;
  }
  if (!blocks || !blocks->is_map()) return {};
  if (const Node* when = blocks->get("when"); when && !evaluate_bool(*when, scope.variables)) return {};
  const Node *block = blocks->get("block"), *random = blocks->get("random");
  if (!block || !random) refuse_policy(*blocks, "block_sparse needs \"block\" and \"random\"");
  return BlockSparse{checked(*block, "blocks of size", evaluate_int(*block, scope.variables), 1),
                     checked(*random, "random blocks", evaluate_int(*random, scope.variables), 0)};
}

/// Builds a term's projection of the table, whose rows ranks share by heads.
std::optional<RelativeContent::Term> Builder::relative_term(const Context& context, const Node& section,
                                                            std::string_view key, const Scope& scope,
                                                            const std::string& path, const Attention& a) {
  const Node* node = section.get(key);
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  RelativeContent::Term term;
  const Node* shared = row->option("shared");
  term.shared = shared && evaluate_bool(*shared, scope.variables);
  if (term.shared) return term;
  if (!row->names()) refuse_policy(*node, "a term of relative_content needs \"from\", or \"shared\"");
  const ParamRequest request{.role = Role::QueryWeight,
                             .path = path + "." + std::string(key),
                             .shape = {a.heads * a.head_dim, context.sizes.hidden},
                             .units = a.heads,
                             .head_dim = a.head_dim};
  if (auto made = linear(context, node, nullptr, scope, request, Role::QueryBias, /*outside=*/true))
    term.projection = std::move(*made);
  if (const Node* bias = row->option("query_bias"))
    term.query_bias = bias_of_queries(*bias, scope, request.path + ".query_bias", a);
  return term;
}

/// Binds what a term of scores adds to its queries: a vector for each head.
std::optional<Param> Builder::bias_of_queries(const Node& row, const Scope& scope, const std::string& path,
                                              const Attention& a) {
  const ParamRequest request{
      .role = Role::QueryBias, .path = path, .shape = {a.heads * a.head_dim}, .units = a.heads, .head_dim = a.head_dim};
  return binder_.bind(request, binder_.names(row, scope, ""), Binding{&row}, scope);
}

std::optional<RelativeContent::Segments> Builder::segments(const Node& section, const Scope& scope,
                                                           const std::string& path, const Attention& a) {
  const Node* node = section.get("segments");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  const Node *input = row->option("input"), *bias = row->option("query_bias");
  if (!row->names() || !input || !bias)
    refuse_policy(*node, "segments of relative_content need \"from\", \"input\" and \"query_bias\"");
  const ParamRequest request{.role = Role::SegmentStates,
                             .path = path + ".segments",
                             .shape = {2, a.heads * a.head_dim},
                             .units = a.heads,
                             .head_dim = a.head_dim};
  RelativeContent::Segments made;
  made.input = input->text;
  made.states = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  made.query_bias = bias_of_queries(*bias, scope, request.path + ".query_bias", a).value_or(Param{});
  if (const Node* common = row->option("common")) made.common = evaluate_int(*common, scope.variables);
  if (const Node* order = row->option("others_first")) made.others_first = evaluate_bool(*order, scope.variables);
  return made;
}

/// Binds the vectors of distances that all heads of a layer read, which stand in place of all other rows.
std::optional<RelativeContent::HeadVectors> Builder::head_vectors(const Node& section, const Scope& scope,
                                                                  const std::string& path, const Attention& a,
                                                                  int64_t span) {
  const Node* node = section.get("head_vectors");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  if (!row->names()) refuse_policy(*node, "head_vectors of relative_content need \"from\"");
  for (const char* other : {"table", "norm", "max_distance", "content_to_position", "position_to_content",
                            "content_bias", "segments", "class_apart"})
    if (section.get(other))
      refuse_policy(*node, "relative_content has \"head_vectors\" or \"" + std::string(other) + "\", not both");
  const ParamRequest request{
      .role = Role::DistanceVectors, .path = path + ".head_vectors", .shape = {2 * span - 1, a.head_dim}};
  RelativeContent::HeadVectors made;
  made.vectors = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  if (const Node* both = row->option("both")) made.meet_keys = evaluate_bool(*both, scope.variables);
  const Node* scaled = row->option("scaled");
  if (scaled && !evaluate_bool(*scaled, scope.variables)) made.factor = 1 / a.scale;
  return made;
}

/// Reads how far distances have rows of their own: all of a table, or up to a distance from which sinusoids are alike.
int64_t Builder::span_of(const Node& node, const Scope& scope, bool sinusoids) {
  const Node* span = node.get("span");
  if (!span) {
    if (!sinusoids) refuse_policy(node, "relative_content with a table or head_vectors needs \"span\"");
    return most;
  }
  const int64_t value = evaluate_int(*span, scope.variables);
  if (sinusoids && value < 1) return most;
  if (value < 1 || value > most)
    throw Error(Reason::ModelUnreadable, span->where() + ": config.json gives a span of " + std::to_string(value) +
                                             " relative positions, expected 1 to " + std::to_string(most));
  return value;
}

std::optional<RelativeContent> Builder::relative_content(const Context& context, const Node& section,
                                                         const Scope& scope, const std::string& path,
                                                         const Attention& a) {
  const Node* node = section.get("relative_content");
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  const Node* distance = node->get("max_distance");
  const std::optional<Binding> table = binder_.binding(node->get("table"), scope.variables);
  if (table && !table->names()) refuse_policy(*node, "the table of relative_content needs \"from\"");
  RelativeContent content;
  const bool has_vectors = binder_.binding(node->get("head_vectors"), scope.variables).has_value();
  content.span = span_of(*node, scope, /*sinusoids=*/!table && !has_vectors);
  const std::string own = path + ".relative_content";
  content.head_vectors = head_vectors(*node, scope, own, a, content.span);
  if (content.head_vectors) return content;
  if (!table && distance) refuse_policy(*node, "relative_content without \"table\" has no \"max_distance\"");
  if (!table && context.sizes.hidden % 2)
    throw Error(Reason::ModelUnreadable, node->where() + ": config.json gives " + std::to_string(context.sizes.hidden) +
                                             " columns, expected an even number: sines and cosines of distances");
  if (distance) content.max_distance = evaluate_int(*distance, scope.variables);
  const int64_t exact = content.span / 2;  // distances below it have rows of their own
  if (content.max_distance != 0 && (exact < 1 || content.max_distance <= exact + 1 || content.max_distance > 1 << 30))
    throw Error(Reason::ModelUnreadable,
                distance->where() + ": config.json gives a span of " + std::to_string(content.span) + " and " +
                    std::to_string(content.max_distance) +
                    " as the maximum distance; expected a span of at least 2, and a distance of more than half of it "
                    "and 1, at most 2^30, or 0");
  if (table) {
    const ParamRequest request{.role = Role::PositionEmbedding,
                               .path = own + ".table",
                               .shape = {2 * content.span, context.sizes.hidden},
                               .units = 2 * content.span};
    content.table =
        binder_.bind(request, binder_.names(*table->names(), scope, ".weight"), *table, scope).value_or(Param{});
  }
  content.norm = norm(context, node, scope, own + ".norm", context.sizes.hidden);
  content.content_to_position = relative_term(context, *node, "content_to_position", scope, own, a);
  content.position_to_content = relative_term(context, *node, "position_to_content", scope, own, a);
  const auto shares = [](const auto& term) { return term && term->shared; };
  if (content.content_to_position && content.position_to_content &&
      shares(content.content_to_position) != shares(content.position_to_content))
    refuse_policy(*node, "both terms of relative_content share the block's projections, or neither");
  if (!content.content_to_position && !content.position_to_content)
    refuse_policy(*node, "relative_content needs \"content_to_position\" or \"position_to_content\"");
  if (const Node* bias = node->get("content_bias"))
    content.content_bias = bias_of_queries(*bias, scope, own + ".content_bias", a);
  content.segments = segments(*node, scope, own, a);
  if (const Node* apart = node->get("class_apart")) content.class_apart = evaluate_bool(*apart, scope.variables);
  return content;
}

}  // namespace pm::policy
