// SPDX-License-Identifier: Apache-2.0
// Builder: dense vectors of a request in place of tokens.
#include <algorithm>

#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<Vectors> Builder::vectors(const Context& context, const Node& section, const Scope& scope,
                                        const std::string& path) {
  const Node* node = section.get("vectors");
  if (!node) return std::nullopt;
  const Node *mask = node->get("mask"), *parts = node->get("parts");
  if (!mask || !parts || parts->items.empty()) refuse_policy(*node, "vectors need \"mask\" and \"parts\", a list");
  Vectors vectors{.mask = mask->text, .parts = {}};
  for (const Node& item : parts->items) {
    const Node* input = item.get("input");
    if (!item.get("from") || !input) refuse_policy(item, "a part of vectors needs \"from\" and \"input\"");
    const bool known = std::any_of(vectors.parts.begin(), vectors.parts.end(),
                                   [&](const Vectors::Part& part) { return part.input == input->text; });
    if (known || input->text == vectors.mask)
      refuse_policy(item, "\"" + input->text + "\" is the input of two parts of vectors, or their mask too");
    Vectors::Part part{.input = input->text, .projection = {}, .norm = {}};
    const ParamRequest request{
        .role = Role::EmbeddingProjection, .path = path + part.input, .shape = {context.sizes.hidden, -1}};
    if (auto made = linear(context, &item, nullptr, scope, request, Role::HeadDenseBias, true))
      part.projection = std::move(*made);
    part.norm = norm(context, &item, scope, path + part.input + ".norm", context.sizes.hidden);
    vectors.parts.push_back(std::move(part));
  }
  return vectors;
}

}  // namespace pm::policy
