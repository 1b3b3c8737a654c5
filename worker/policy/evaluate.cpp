// SPDX-License-Identifier: Apache-2.0
// Evaluation of expressions over config.json, and the typed values that slots of a policy ask for.
#include <algorithm>
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/expression_term.h"

namespace pm::policy {

using nlohmann::json;

namespace {

constexpr int deepest_let = 40;
constexpr size_t longest_list = 100000;
constexpr size_t longest_number = 10;  // digits of a key that is a number

[[noreturn]] void fail(const std::string& message) { throw ExpressionError(message); }

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

class Evaluator {
 public:
  Evaluator(const Variables& variables, std::string& missing) : variables_(variables), missing_(missing) {}

  json operator()(const Expression::Term& term) {
    auto child = [&](size_t i) { return (*this)(*term.children[i]); };
    switch (term.op) {
      case Op::Literal:
        return term.value;
      case Op::Name:
        return named(term.text);
      case Op::Member:
        return member(child(0), term.text);
      case Op::Index:
        return element(child(0), child(1));
      case Op::Choice:
        return truth(child(0)) ? child(1) : child(2);
      case Op::Otherwise: {
        json left = child(0);
        return left.is_null() ? child(1) : left;
      }
      case Op::Or:
        return truth(child(0)) || truth(child(1));
      case Op::And:
        return truth(child(0)) && truth(child(1));
      case Op::Not:
        return !truth(child(0));
      case Op::Equal:
        return child(0) == child(1);
      case Op::Differs:
        return child(0) != child(1);
      case Op::Less:
      case Op::AtMost:
      case Op::Greater:
      case Op::AtLeast:
        return compare(term.op, child(0), child(1));
      case Op::Minus:
        return arithmetic(Op::Subtract, json(int64_t{0}), child(0));
      case Op::Starts:
        return text(child(0)).starts_with(text(child(1)));
      case Op::Split:
        return split(child(0), text(child(1)));
      case Op::Last: {
        const json list = child(0);
        if (!list.is_array() || list.empty()) fail("last() of " + shown(list) + ", expected a list that is not empty");
        return list.back();
      }
      case Op::Length: {
        const json list = child(0);
        if (!list.is_array()) fail("length() of " + shown(list) + ", expected a list");
        return static_cast<int64_t>(list.size());
      }
      case Op::Contains: {
        const json list = child(0);
        if (!list.is_array() && !list.is_null()) fail("contains() of " + shown(list) + ", expected a list");
        return std::find(list.begin(), list.end(), child(1)) != list.end();
      }
      case Op::Expand:
        return expand(child(0));
      case Op::Pair:
        return pair(child(0));
      case Op::List: {
        json list = json::array();
        for (size_t i = 0; i < term.children.size(); ++i) list.push_back(child(i));
        return list;
      }
      case Op::Times:
        return times(child(0), child(1));
      case Op::Sum:
        return sum(child(0), child(1));
      case Op::Run:
        return run(child(0), child(1));
      case Op::Log:
        return log(child(0));
      case Op::Has:
        return variables_.config->contains(term.children[0]->text);
      default:
        return arithmetic(term.op, child(0), child(1));
    }
  }

 private:
  json named(const std::string& name) {
    if (name == "l") {
      if (!variables_.layer) fail("\"l\" is the number of the layer and is not known here");
      return *variables_.layer;
    }
    if (name == "e" && variables_.expert) return *variables_.expert;
    for (const Node* lets : variables_.lets) {
      const Node* node = lets ? lets->get(name) : nullptr;
      if (!node || inside(node)) continue;
      if (!node->is_scalar()) fail("\"" + name + "\" of let (" + node->where() + ") is not an expression");
      if (active_.size() >= deepest_let) fail("let \"" + name + "\" (" + node->where() + ") is nested too deeply");
      active_.push_back(node);
      const Expression expression(node->text);
      json value = (*this)(expression.root());
      active_.pop_back();
      return value;
    }
    const auto found = variables_.config->find(name);
    if (found == variables_.config->end() || found->is_null()) {
      missing_ = name;
      return nullptr;
    }
    return *found;
  }
  /// A let may read the name that it hides: `hidden: hidden` in a stack means the policy's or config.json's.
  bool inside(const Node* node) const {
    for (const Node* active : active_)
      if (active == node) return true;
    return false;
  }

  json member(const json& value, const std::string& key) {
    if (value.is_null()) return missing_ += "." + key, nullptr;
    if (!value.is_object()) fail("." + key + " of " + shown(value) + ", expected an object");
    if (auto found = value.find(key); found != value.end() && !found->is_null()) return *found;
    missing_ = key;
    return nullptr;
  }
  /// Returns the member whose key is the number. transformers pads such keys with zeros to one length ("05").
  json numbered(const json& object, int64_t index) {
    const std::string digits = std::to_string(index);
    for (std::string key = digits; key.size() <= longest_number; key.insert(0, "0"))
      if (object.contains(key)) return member(object, key);
    return member(object, digits);
  }
  json element(const json& list, const json& index) {
    if (list.is_null() || list.is_number()) return list;  // a number stands for a list that has it everywhere
    if (list.is_object() && index.is_number_integer()) return numbered(list, index.get<int64_t>());
    if (!list.is_array() || !index.is_number_integer())
      fail("[] of " + shown(list) + " at " + shown(index) + ", expected a list and a whole number");
    const int64_t at = index.get<int64_t>();
    if (at < 0 || at >= static_cast<int64_t>(list.size()))
      fail("element " + std::to_string(at) + " of a list of " + std::to_string(list.size()));
    return list[static_cast<size_t>(at)];
  }
  bool truth(const json& value) {
    if (value.is_null()) throw_missing();
    if (!value.is_boolean()) fail(shown(value) + " is neither true nor false");
    return value.get<bool>();
  }
  std::string text(const json& value) {
    if (value.is_null()) throw_missing();
    if (!value.is_string()) fail(shown(value) + " is not a text");
    return value.get<std::string>();
  }
  [[noreturn]] void throw_missing() { throw MissingKey(missing_); }

  json compare(Op op, const json& a, const json& b) {
    if (a.is_null() || b.is_null()) throw_missing();
    if (a.is_number() != b.is_number() || !(a.is_number() || a.is_string()))
      fail(shown(a) + " and " + shown(b) + " cannot be compared");
    switch (op) {
      case Op::Less:
        return a < b;
      case Op::AtMost:
        return a <= b;
      case Op::Greater:
        return a > b;
      default:
        return a >= b;
    }
  }
  json divided_down(double a, double b) {
    if (b == 0) fail("division by 0");
    const double result = std::floor(a / b);
    if (!(std::abs(result) < 9e18)) fail("a number is larger than 2^63");
    return static_cast<int64_t>(result);
  }
  json arithmetic(Op op, const json& a, const json& b) {
    if (a.is_null() || b.is_null()) throw_missing();
    if (!a.is_number() || !b.is_number())
      fail("arithmetic with " + shown(a) + " and " + shown(b) + ", expected numbers");
    const bool whole = a.is_number_integer() && b.is_number_integer();
    if (whole && (too_large(a) || too_large(b))) fail("a number is larger than 2^63");
    if (op == Op::DivideDown && !whole) return divided_down(a.get<double>(), b.get<double>());
    if (op == Op::Remainder || (whole && op != Op::Divide && !(op == Op::Power && b.get<int64_t>() < 0))) {
      if (!whole) fail("% is for whole numbers, found " + shown(a) + " and " + shown(b));
      return integers(op, a.get<int64_t>(), b.get<int64_t>());
    }
    const double x = a.get<double>(), y = b.get<double>();
    double result = 0;
    switch (op) {
      case Op::Add:
        result = x + y;
        break;
      case Op::Subtract:
        result = x - y;
        break;
      case Op::Multiply:
        result = x * y;
        break;
      case Op::Divide:
        if (y == 0) fail("division by 0");
        result = x / y;
        break;
      default:
        result = std::pow(x, y);
        break;
    }
    if (!std::isfinite(result)) fail("the result of " + shown(a) + " and " + shown(b) + " is not a number");
    return result;
  }
  static bool too_large(const json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  }
  static json integers(Op op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
      case Op::Add:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
      case Op::Subtract:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
      case Op::Multiply:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
      case Op::DivideDown:
      case Op::Remainder: {
        if (b <= 0) fail("division by " + std::to_string(b) + ", expected a number above 0");
        const int64_t below = a % b < 0;  // rounded down, without a sum that could overflow
        result = op == Op::Remainder ? a % b + below * b : a / b - below;
        break;
      }
      default:
        if (b > 64) fail("the exponent " + std::to_string(b) + " is too large for whole numbers");
        result = 1;
        for (int64_t i = 0; i < b && !overflow; ++i) overflow = __builtin_mul_overflow(result, a, &result);
    }
    if (overflow) fail("the result is larger than 2^63");
    return result;
  }
  /// A list is split already; what is absent stays so.
  json split(const json& value, const std::string& separator) {
    if (value.is_array() || value.is_null()) return value;
    const std::string text = this->text(value);
    json parts = json::array();
    if (separator.empty()) {
      for (const char character : text) parts.push_back(std::string(1, character));
      return parts;
    }
    size_t from = 0;
    for (size_t to; (to = text.find(separator, from)) != std::string::npos; from = to + separator.size())
      parts.push_back(text.substr(from, to - from));
    parts.push_back(text.substr(from));
    return parts;
  }
  /// GPT-Neo's attention_types: [[["global", "local"], 12]] -> 24 words.
  static json expand(const json& pairs) {
    if (pairs.is_null()) return nullptr;
    json list = json::array();
    if (!pairs.is_array()) fail("expand() of " + shown(pairs) + ", expected a list of [pattern, times]");
    for (const json& pair : pairs) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_array() || !pair[1].is_number_unsigned() ||
          pair[1].get<uint64_t>() > longest_list) {
        fail("expand() of " + shown(pair) + ", expected [pattern, times]");
      }
      for (uint64_t i = 0; i < pair[1].get<uint64_t>(); ++i) {
        for (const json& item : pair[0]) list.push_back(item);
        if (list.size() > longest_list) fail("expand() gives more than 100000 elements");
      }
    }
    return list;
  }

  /// Sizes of two directions, which a config.json gives as one number where both are equal.
  static json pair(const json& value) {
    if (value.is_null()) return nullptr;
    if (value.is_number()) return json::array({value, value});
    if (!value.is_array() || value.size() != 2)
      fail("pair() of " + shown(value) + ", expected a number or a list of two");
    return value;
  }

  /// The elements of a list times a number, or times those of a list of the same length.
  json times(const json& list, const json& factors) {
    if (list.is_null() || factors.is_null()) return nullptr;
    if (!list.is_array() || (factors.is_array() && factors.size() != list.size()))
      fail("times() of " + shown(list) + " and " + shown(factors) +
           ", expected a list and a number, or two of one length");
    json products = json::array();
    for (size_t i = 0; i < list.size(); ++i)
      products.push_back(arithmetic(Op::Multiply, list[i], factors.is_array() ? factors[i] : factors));
    return products;
  }
  /// The natural logarithm.
  static json log(const json& value) {
    if (value.is_null()) return nullptr;
    if (!value.is_number() || value.get<double>() <= 0)
      fail("log() of " + shown(value) + ", expected a number above 0");
    return std::log(value.get<double>());
  }
  /// The sum of the first elements of a list, or of all where it has fewer.
  json sum(const json& list, const json& count) {
    if (list.is_null()) return nullptr;
    if (!list.is_array() || !count.is_number_integer())
      fail("sum() of " + shown(list) + " and " + shown(count) + ", expected a list and a whole number");
    json total = int64_t{0};
    for (size_t i = 0; i < list.size() && static_cast<int64_t>(i) < count.get<int64_t>(); ++i)
      total = arithmetic(Op::Add, total, list[i]);
    return total;
  }
  /// The number of the run in which `number` lies, where a list says how long each run is; behind all: their count.
  json run(const json& lengths, const json& number) {
    if (lengths.is_null()) return nullptr;
    if (!lengths.is_array()) fail("run() of " + shown(lengths) + ", expected a list");
    for (size_t i = 0; i < lengths.size(); ++i)
      if (compare(Op::Less, number, sum(lengths, static_cast<int64_t>(i) + 1))) return static_cast<int64_t>(i);
    return static_cast<int64_t>(lengths.size());
  }

  const Variables& variables_;
  std::string& missing_;
  std::vector<const Node*> active_;
};

/// Parses the text of `node`; an error is an error of the policy.
Expression parsed(const Node& node) {
  try {
    return Expression(node.text);
  } catch (const ExpressionError& problem) {
    refuse_policy(node, std::string(problem.what()) + " in: " + node.text);
  }
}

[[noreturn]] void wrong_type(const Node& node, const json& value, const char* wanted) {
  throw Error(Reason::ModelUnreadable, "\"" + node.text + "\" (" + node.where() + ") is " + shown(value) +
                                           " with this config.json, expected " + wanted);
}

void expect_scalar(const Node& node) {
  if (!node.is_scalar())
    refuse_policy(node, "expected one expression, found a " + std::string(node.is_list() ? "list" : "map"));
}

/// Calls `text` for what is outside of braces and `inside` for what is between them.
template <typename Text, typename Inside>
void for_braces(const Node& node, Text text, Inside inside) {
  const std::string& all = node.text;
  for (size_t at = 0; at < all.size();) {
    const size_t open = all.find_first_of("{}", at);
    text(all.substr(at, open == std::string::npos ? open : open - at));
    if (open == std::string::npos) return;
    const size_t close = all.find_first_of("{}", open + 1);
    if (all[open] != '{' || close == std::string::npos || all[close] != '}')
      refuse_policy(node, "braces do not match in: " + all);
    inside(all.substr(open + 1, close - open - 1));
    at = close + 1;
  }
}

}  // namespace

json Expression::evaluate(const Variables& variables, std::string* missing) const {
  std::string key;
  json value = Evaluator(variables, missing ? *missing : key)(*root_);
  return value;
}

json evaluate(const Node& node, const Variables& variables, bool nullable) {
  expect_scalar(node);
  const Expression expression = parsed(node);
  // the policy's text is sound, so what fails now comes from the values in config.json
  auto unreadable = [&](const std::string& message) -> Error { return {Reason::ModelUnreadable, message}; };
  try {
    std::string missing;
    json value = expression.evaluate(variables, &missing);
    if (value.is_null() && !nullable) throw MissingKey(missing);
    return value;
  } catch (const MissingKey& problem) {
    throw unreadable(std::string(problem.what()) + ", which " + node.where() + " needs");
  } catch (const std::exception& problem) {
    throw unreadable(node.where() + ": " + problem.what() + " with this config.json, in: " + node.text);
  }
}

int64_t evaluate_int(const Node& node, const Variables& variables) {
  const json value = evaluate(node, variables);
  if (value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))
    return value.get<int64_t>();
  if (value.is_number_integer() && !value.is_number_unsigned()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 9e15) return static_cast<int64_t>(number);
  }
  wrong_type(node, value, "a whole number");
}

double evaluate_number(const Node& node, const Variables& variables) {
  const json value = evaluate(node, variables);
  if (!value.is_number() || !std::isfinite(value.get<double>())) wrong_type(node, value, "a number");
  return value.get<double>();
}

bool evaluate_bool(const Node& node, const Variables& variables) {
  const json value = evaluate(node, variables);
  if (!value.is_boolean()) wrong_type(node, value, "true or false");
  return value.get<bool>();
}

std::string evaluate_text(const Node& node, const Variables& variables) {
  const json value = evaluate(node, variables);
  if (!value.is_string()) wrong_type(node, value, "a text");
  return value.get<std::string>();
}

std::string interpolate(const Node& node, const Variables& variables) {
  expect_scalar(node);
  std::string result;
  auto inside = [&](const std::string& text) {
    Node part = node;
    part.text = text;
    const json value = evaluate(part, variables);
    if (value.is_string())
      result += value.get<std::string>();
    else if (value.is_number_integer())
      result += value.dump();
    else
      wrong_type(part, value, "a text or a whole number");
  };
  for_braces(node, [&](const std::string& text) { result += text; }, inside);
  return result;
}

void check_expression(const Node& node) {
  expect_scalar(node);
  parsed(node);
}

void check_template(const Node& node) {
  expect_scalar(node);
  auto inside = [&](const std::string& text) {
    Node part = node;
    part.text = text;
    check_expression(part);
  };
  for_braces(node, [](const std::string&) {}, inside);
}

}  // namespace pm::policy
