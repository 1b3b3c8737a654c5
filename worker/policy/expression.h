// SPDX-License-Identifier: Apache-2.0
// The closed expression grammar of policies over config.json. No loops, no assignment, no names beyond config, let, l
// and e.
//   value ? a : b    a ?? b    or  and  not    == != < <= > >=    + -  * / // %    -x    **    x.key  x[i]
//   starts(text, prefix)  split(text, separator)  last(list)  contains(list, value)  pair(x)
//   expand([[pattern, times], ...])  has(key)  log(x)  'text'  12
//   1e-5  true  false  null
// `??` takes its right side when the left is absent or null; it binds tighter than `?:` and looser than everything
// else. Numbers are 64-bit integers (overflow is an error) or doubles; `/` gives a double, `//` and `%` are for
// integers and round down.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/policy/node.h"

namespace pm::policy {

/// The variables of an expression: `l` (the layer) and `e` (the expert), then each map of `lets` in turn (the stack's
/// before the policy's), then config.json.
struct Variables {
  const nlohmann::json* config = nullptr;
  std::vector<const Node*> lets;
  std::optional<int64_t> layer, expert;
};

/// An error of an expression's text: `column` counts from 1 in it.
struct ExpressionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value was needed, and the key of config.json that it comes from is absent or null.
struct MissingKey : ExpressionError {
  explicit MissingKey(const std::string& key) : ExpressionError("config.json has no \"" + key + "\""), key(key) {}
  std::string key;
};

/// A parsed expression.
class Expression {
 public:
  /// Throws ExpressionError with the column.
  explicit Expression(std::string_view text);
  ~Expression();
  Expression(Expression&&) noexcept;
  /// The value; null when it comes from an absent key. Throws ExpressionError (types, overflow, division by 0, lets
  /// that use themselves). `missing`: when given, gets the last key that was looked up in vain.
  nlohmann::json evaluate(const Variables&, std::string* missing = nullptr) const;

  struct Term;
  const Term& root() const { return *root_; }

 private:
  std::unique_ptr<Term> root_;
};

/// Evaluates the scalar `node`. Errors: Error{UnsupportedPolicy} with file and line for a wrong expression;
/// when config.json lacks a key or holds values that do not fit, Error{ModelUnreadable} with the key or the
/// values. Null only when `nullable`.
nlohmann::json evaluate(const Node& node, const Variables&, bool nullable = false);
int64_t evaluate_int(const Node& node, const Variables&);  ///< also takes 4.0
double evaluate_number(const Node& node, const Variables&);
bool evaluate_bool(const Node& node, const Variables&);
std::string evaluate_text(const Node& node, const Variables&);
/// `node`'s text with each {expression} replaced by its value.
std::string interpolate(const Node& node, const Variables&);
/// Parses the node's expression, or the expressions in its braces, without evaluating. Throws Error{UnsupportedPolicy}.
void check_expression(const Node& node);
void check_template(const Node& node);

}  // namespace pm::policy
