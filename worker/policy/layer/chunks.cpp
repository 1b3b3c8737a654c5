// SPDX-License-Identifier: Apache-2.0
// Builder: attention in chunks, and the lengths to which it pads sequences.
#include <algorithm>
#include <numeric>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

constexpr int64_t most_rounds = 64, most_factors = 8, most_buckets = int64_t{1} << 30;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

/// Reads a number of buckets, a list of its factors, or null: they follow from the length.
std::vector<int64_t> buckets_of(const Node& node, const Variables& variables) {
  const nlohmann::json value = evaluate(node, variables, /*nullable=*/true);
  if (value.is_null()) return {};
  const nlohmann::json list = value.is_array() ? value : nlohmann::json::array({value});
  std::vector<int64_t> buckets;
  int64_t product = 1;
  for (const nlohmann::json& factor : list) {
    const int64_t number = factor.is_number_integer() ? factor.get<int64_t>() : 0;
    const bool sound = number >= 2 && number % 2 == 0 && number <= most_buckets / product;
    if (!sound || static_cast<int64_t>(buckets.size()) == most_factors)
      unreadable(node, "config.json gives " + value.dump().substr(0, 60) +
                           " as the number of buckets, expected an even number, a list of up to 8 whose product is at "
                           "most 2^30, or null");
    product *= number;
    buckets.push_back(number);
  }
  if (buckets.empty()) unreadable(node, "config.json gives an empty list of buckets");
  return buckets;
}

}  // namespace

std::optional<Chunks> Builder::chunks(const Node& section, const Scope& scope) {
  const Node* node = section.get("chunks");
  if (!node || !node->is_map()) return std::nullopt;
  Chunks made{.length = small_size(*node, "length", scope),
              .before = small_size(*node, "before", scope, true),
              .after = small_size(*node, "after", scope, true),
              .hashes = {}};
  if (made.length * (1 + made.before + made.after) > int64_t{1} << 20)
    unreadable(*node, "config.json gives chunks of " + std::to_string(made.length) + " tokens that see " +
                          std::to_string(made.before + made.after) + " others, expected up to 2^20 tokens in all");
  const Node* hashes = node->get("hashes");
  const Node* when = hashes ? hashes->get("when") : nullptr;
  if (!hashes || (when && !evaluate_bool(*when, scope.variables))) return made;
  Hashes& own = made.hashes.emplace();
  own.rounds = small_size(*hashes, "rounds", scope);
  if (own.rounds > most_rounds)
    unreadable(*hashes, "config.json gives " + std::to_string(own.rounds) + " rounds of hashes, expected up to 64");
  own.positions = small_size(*hashes, "positions", scope);
  if (const Node* buckets = hashes->get("buckets")) own.buckets = buckets_of(*buckets, scope.variables);
  if (const Node* seed = hashes->get("seed")) own.seed = evaluate_int(*seed, scope.variables);
  if (own.seed < 0)
    unreadable(*hashes, "config.json gives the seed " + std::to_string(own.seed) + ", expected 0 or more");
  return made;
}

/// Sets the lengths to which chunks of all layers pad sequences, and leaves no position to a sequence whose padding
/// would have none.
void Builder::pad_to_chunks(Stack& stack) {
  int64_t multiple = 1, shortest = int64_t{1} << 30;
  for (const Layer& layer : stack.layers) {
    if (!layer.attention.chunks) return;
    const int64_t length = layer.attention.chunks->length;
    multiple = std::lcm(multiple, length);
    shortest = std::min(shortest, length);
  }
  for (Layer& layer : stack.layers) {
    layer.attention.chunks->multiple = multiple;
    layer.attention.chunks->shortest = shortest;
  }
  const int64_t whole = stack.positions / multiple * multiple;
  stack.positions = std::max(whole, std::min(stack.positions, shortest));
}

}  // namespace pm::policy
