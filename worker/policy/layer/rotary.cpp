// SPDX-License-Identifier: Apache-2.0
// Builder: rotary embedding.
#include <algorithm>
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

using nlohmann::json;

constexpr double most_tokens = 1 << 30;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message + " with this config.json");
}

/// Returns the kind of a scaling, or "default".
std::string kind_of(const json& scaling) {
  for (const char* key : {"rope_type", "type"}) {
    if (scaling.is_object() && scaling.contains(key) && scaling[key].is_string())
      return scaling[key].get<std::string>();
  }
  return "default";
}

/// Returns as many positive numbers as there are frequencies.
std::vector<double> factors_of(const Node& at, const json& list, const char* name, int64_t count) {
  const auto positive = [](const json& one) { return one.is_number() && one.get<double>() > 0; };
  if (!list.is_array() || static_cast<int64_t>(list.size()) != count ||
      !std::all_of(list.begin(), list.end(), positive))
    unreadable(at, std::string(name) + " of the rope scaling is no list of " + std::to_string(count) +
                       " numbers above 0, one for each two rotary dimensions,");
  return list.get<std::vector<double>>();
}

double number_of(const json& scaling, const char* key, double default_value) {
  const auto found = scaling.find(key);
  return found != scaling.end() && found->is_number() ? found->get<double>() : default_value;
}

/// Returns which axis turns each of the frequencies. In sections each axis has as many as `sections` says, one axis
/// after another (Qwen2-VL); interleaved they take turns within the first sections[axis] x count, and the first axis
/// has the others (Qwen3-VL). Apart each has the same number, those of its share of the dimensions (Qwen2-VL's tower);
/// alternating each has every count-th of those of all dimensions (Pixtral).
RotaryAxes axes_of(const Node& at, const std::string& layout, int64_t count, const json& sections,
                   int64_t frequencies) {
  RotaryAxes axes{.count = count, .of_frequency = {}, .exponents = {}};
  if (layout == "apart" || layout == "alternating") {
    if (count < 1 || frequencies % count != 0)
      unreadable(at,
                 std::to_string(frequencies) + " frequencies are not divided by " + std::to_string(count) + " axes");
    const int64_t own = frequencies / count;
    for (int64_t i = 0; i < frequencies; ++i) {
      const int64_t axis = i / own, number = i % own * count + (layout == "apart" ? 0 : axis);
      axes.of_frequency.push_back(axis);
      axes.exponents.push_back(static_cast<double>(number) / static_cast<double>(frequencies));
    }
    return axes;
  }
  const auto whole = [](const json& one) { return one.is_number_integer() && one.get<int64_t>() >= 0; };
  if (!sections.is_array() || sections.empty() || !std::all_of(sections.begin(), sections.end(), whole))
    unreadable(at, "the sections of rotary axes are " + sections.dump() + ", expected a list of numbers");
  axes.count = static_cast<int64_t>(sections.size());
  if (layout == "interleaved") {
    for (int64_t i = 0; i < frequencies; ++i) {
      const int64_t axis = i % axes.count, end = sections[static_cast<size_t>(axis)].get<int64_t>() * axes.count;
      axes.of_frequency.push_back(i < end ? axis : 0);
    }
    return axes;
  }
  for (size_t axis = 0; axis < sections.size(); ++axis)
    axes.of_frequency.insert(axes.of_frequency.end(), sections[axis].get<size_t>(), static_cast<int64_t>(axis));
  if (static_cast<int64_t>(axes.of_frequency.size()) != frequencies)
    unreadable(at, "the sections of rotary axes " + sections.dump() + " have " +
                       std::to_string(axes.of_frequency.size()) + " frequencies, the rotary dimensions " +
                       std::to_string(frequencies));
  return axes;
}

}  // namespace

/// Reads a scaling of type longrope (its old name: su). transformers' `_compute_longrope_parameters` has the factor of
/// cosines and sines.
std::optional<LongRope> Builder::long_rope(const Context& context, const Node& node, const Scope& scope,
                                           const Rotary& rotary) const {
  const std::string kind = kind_of(rotary.scaling);
  if (kind != "longrope" && kind != "su") return std::nullopt;
  const Node *own = node.get("longrope"), *original = own ? own->get("original") : nullptr,
             *long_factors = own ? own->get("long_factor") : nullptr,
             *attention = own ? own->get("attention_factors") : nullptr;
  LongRope rope;
  constexpr const char* key_of_original = "original_max_position_embeddings";  // the key beside the scaling comes first
  const double length =
      original ? static_cast<double>(evaluate_int(*original, scope.variables))
               : number_of(view_.config, key_of_original,
                           number_of(rotary.scaling, key_of_original, static_cast<double>(context.sizes.positions)));
  if (!(length >= 2 && length <= most_tokens))
    unreadable(node, "the original length of longrope is " + json(length).dump() + " tokens, expected 2 to 2^30,");
  rope.original = static_cast<int64_t>(length);
  const auto under = [&](const char* key) {
    const auto found = rotary.scaling.find(key);
    return found == rotary.scaling.end() ? json() : *found;
  };
  rope.short_factors = factors_of(node, under("short_factor"), "short_factor", rotary.dims / 2);
  rope.long_factors =
      factors_of(node, long_factors ? evaluate(*long_factors, scope.variables, true) : under("long_factor"),
                 "long_factor", rotary.dims / 2);
  const auto trained = static_cast<double>(rope.original);
  const double factor = number_of(rotary.scaling, "factor", static_cast<double>(context.sizes.positions) / trained);
  rope.short_attention = rope.long_attention = number_of(
      rotary.scaling, "attention_factor", factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(trained)));
  if (!attention) return rope;
  const std::vector<double> both =
      factors_of(*attention, evaluate(*attention, scope.variables, true), "the pair of attention factors", 2);
  rope.short_attention = both[0];
  rope.long_attention = both[1];
  return rope;
}

std::optional<Rotary> Builder::rotary(const Context& context, const Node& section, const Scope& scope,
                                      const Attention& a) {
  const Node* node = section.get("rotary");
  if (!node) return std::nullopt;
  const Node *when = node->get("when"), *growth = node->get("query_growth"),
             *grows = growth ? growth->get("when") : nullptr;
  const bool turns = !when || evaluate_bool(*when, scope.variables),
             grow = growth && (!grows || evaluate_bool(*grows, scope.variables));
  if (!turns && !grow) return std::nullopt;
  Rotary rotary;
  rotary.dims = a.head_dim;
  if (const Node* style = node->get("style"))
    rotary.style =
        parse_keyword(*style, scope.variables, rotary_words) == "neox" ? RotaryStyle::Neox : RotaryStyle::Interleaved;
  if (const Node* dims = node->get("dims")) rotary.dims = evaluate_int(*dims, scope.variables);
  if (const Node* theta = node->get("theta")) rotary.theta = evaluate_number(*theta, scope.variables);
  if (rotary.dims <= 0 || rotary.dims % 2 != 0 || rotary.dims > a.head_dim)
    unreadable(*node, "the number of rotary dimensions is " + std::to_string(rotary.dims) +
                          ", expected an even number up to the head size " + std::to_string(a.head_dim) + ",");
  if (rotary.theta <= 0) unreadable(*node, "theta is " + json(rotary.theta).dump() + ", expected a number above 0,");
  if (const Node* values = node->get("values")) rotary.values = evaluate_bool(*values, scope.variables);
  if (const Node* scaling = node->get("scaling")) rotary.scaling = evaluate(*scaling, scope.variables, true);
  if (!turns) rotary.scaling = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0}};  // no frequency
  for (const char* key : {"rope_type", "type"}) {  // what transformers >= 5 writes where there is no scaling
    if (rotary.scaling.is_object() && rotary.scaling.value(key, json()) == "default") rotary.scaling = nullptr;
  }
  rotary.long_rope = long_rope(context, *node, scope, rotary);
  if (const Node* axes = node->get("axes")) {
    const Node *layout = axes->get("layout"), *sections = axes->get("sections"), *count = axes->get("count");
    if (!layout) refuse_policy(*axes, "axes need a \"layout\"");
    rotary.axes = axes_of(*axes, parse_keyword(*layout, scope.variables, rotary_axes_words),
                          count ? evaluate_int(*count, scope.variables) : 2,
                          sections ? evaluate(*sections, scope.variables, true) : json(), rotary.dims / 2);
  }
  if (grow) {
    const Node *beta = growth->get("beta"), *original = growth->get("original"), *offset = growth->get("offset");
    if (!beta || !original) refuse_policy(*growth, "query_growth needs \"beta\" and \"original\"");
    rotary.query_growth = {evaluate_number(*beta, scope.variables), evaluate_int(*original, scope.variables),
                           offset ? evaluate_int(*offset, scope.variables) : 0};
    if (rotary.query_growth->beta < 0 || rotary.query_growth->original < 1 || rotary.query_growth->offset < 0)
      unreadable(*growth, "query_growth has beta " + json(rotary.query_growth->beta).dump() + ", original " +
                              std::to_string(rotary.query_growth->original) + " and offset " +
                              std::to_string(rotary.query_growth->offset) +
                              ", expected 0 or more, 1 or more and 0 or more,");
  }
  return rotary;
}

}  // namespace pm::policy
