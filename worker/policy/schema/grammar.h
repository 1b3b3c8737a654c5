// SPDX-License-Identifier: Apache-2.0
// The grammar of policy files: which keys stand where, and what their values are.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace pm::policy {

struct Key;

struct Rule {
  enum class Kind : uint8_t {
    Expression,  ///< a scalar over config.json
    Word,        ///< one of `words`, or an expression that gives one
    Text,        ///< a plain scalar
    Texts,       ///< one or a list of them
    Names,       ///< one or a list of name templates
    Bias,  ///< an expression (true, false), names of whole tensors ([..] or =name), or a section with `keys` that has
           ///< them as `from`
    Row,   ///< names, or a section that has them as `from`
    Section,   ///< a map with `keys`
    Each,      ///< a map with any keys, each value as keys[0]
    Flag,      ///< an expression (true, false), or a section with `keys` that is on unless its `when` is false
    Sentence,  ///< a plain scalar, or a map from expressions to such
    Known,     ///< a plain scalar that is one of `words`
    Position,  ///< a word of `words`, or a section with `keys`
    Rows,      ///< a list of Row
  };
  Kind kind = Kind::Expression;
  std::vector<std::string_view> words;
  std::vector<Key> keys;
};

struct Key {
  std::string_view name;
  Rule rule;
};

/// Returns the rule of a whole policy.
const Rule& grammar();
/// Returns the rule of a key that the rule has.
const Rule& under(const Rule& rule, std::string_view key);

}  // namespace pm::policy
