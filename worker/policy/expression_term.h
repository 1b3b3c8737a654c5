// SPDX-License-Identifier: Apache-2.0
// The syntax tree between expression.cpp (parses) and evaluate.cpp (evaluates).
#pragma once
#include "worker/policy/expression.h"

namespace pm::policy {

enum class Op : uint8_t {
  Literal,
  Name,
  Member,
  Index,
  Choice,
  Otherwise,
  Or,
  And,
  Not,
  Equal,
  Differs,
  Less,
  AtMost,
  Greater,
  AtLeast,
  Add,
  Subtract,
  Multiply,
  Divide,
  DivideDown,
  Remainder,
  Minus,
  Power,
  Starts,
  Split,
  Last,
  Length,
  Contains,
  Expand,
  Pair,
  List,
  Times,
  Sum,
  Run,
  Log,
  Has,
};

struct Expression::Term {
  Op op = Op::Literal;
  nlohmann::json value;  ///< Literal
  std::string text;      ///< Name, Member
  std::vector<std::unique_ptr<Term>> children;
};

}  // namespace pm::policy
