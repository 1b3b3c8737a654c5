// SPDX-License-Identifier: Apache-2.0
// Parses expressions: a lexer and a precedence-climbing parser. Evaluation is in evaluate.cpp.
#include "worker/policy/expression.h"

#include <cctype>
#include <charconv>

#include "worker/policy/expression_term.h"

namespace pm::policy {

namespace {

constexpr int deepest = 100;
constexpr size_t longest = 2000;

struct Token {
  enum class Kind { End, Number, Text, Word, Sign } kind = Kind::End;
  std::string text;
  size_t column = 1;
};

[[noreturn]] void fail(const std::string& message, size_t column) {
  throw ExpressionError(message + " at column " + std::to_string(column));
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    Token token{Token::Kind::End, "", at_ + 1};
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) return number(token);
    if (c == '\'' || c == '"') return quoted(token, c);
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
        token.text += text_[at_++];
      token.kind = Token::Kind::Word;
      return token;
    }
    for (std::string_view sign : {"**", "//", "??", "==", "!=", "<=", ">=", "?", ":", "<", ">",
                                  "+",  "-",  "*",  "/",  "%",  "(",  ")",  "[", "]", ",", "."}) {
      if (text_.substr(at_).starts_with(sign)) {
        at_ += sign.size();
        return {Token::Kind::Sign, std::string(sign), token.column};
      }
    }
    fail(std::string("unexpected '") + c + "'", at_ + 1);
  }

 private:
  Token number(Token token) {
    auto digits = [&] {
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) token.text += text_[at_++];
    };
    digits();
    if (at_ + 1 < text_.size() && text_[at_] == '.' && std::isdigit(static_cast<unsigned char>(text_[at_ + 1]))) {
      token.text += text_[at_++];
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      token.text += text_[at_++];
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) token.text += text_[at_++];
      digits();
    }
    token.kind = Token::Kind::Number;
    return token;
  }
  Token quoted(Token token, char quote) {
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a text without its closing quote", at_ + 1);
    token.text = text_.substr(at_ + 1, end - at_ - 1);
    token.kind = Token::Kind::Text;
    at_ = end + 1;
    return token;
  }
  std::string_view text_;
  size_t at_ = 0;
};

using Term = Expression::Term;
using TermPtr = std::unique_ptr<Term>;

struct Binary {
  std::string_view sign;
  Op op;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { advance(); }

  TermPtr parse_all() {
    if (token_.kind == Token::Kind::End) fail("an empty expression", 1);
    TermPtr term = choice();
    if (token_.kind != Token::Kind::End) fail("unexpected '" + token_.text + "'", token_.column);
    return term;
  }

 private:
  void advance() { token_ = lexer_.next(); }
  bool sign(std::string_view text) const { return token_.kind == Token::Kind::Sign && token_.text == text; }
  bool word(std::string_view text) const { return token_.kind == Token::Kind::Word && token_.text == text; }
  bool take(std::string_view text) {
    if (!sign(text)) return false;
    advance();
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text))
      fail("expected '" + std::string(text) + "'" + (token_.text.empty() ? "" : ", found '" + token_.text + "'"),
           token_.column);
  }
  static TermPtr make(Op op, TermPtr a, TermPtr b = nullptr, TermPtr c = nullptr) {
    auto term = std::make_unique<Term>();
    term->op = op;
    for (TermPtr* child : {&a, &b, &c})
      if (*child) term->children.push_back(std::move(*child));
    return term;
  }
  struct Depth {
    int& depth;
    Depth(int& depth, size_t column) : depth(depth) {
      if (++depth > deepest) fail("nested too deeply", column);
    }
    ~Depth() { --depth; }
  };

  TermPtr choice() {
    const Depth guard(depth_, token_.column);
    TermPtr condition = otherwise();
    if (!take("?")) return condition;
    TermPtr yes = choice();
    expect(":");
    return make(Op::Choice, std::move(condition), std::move(yes), choice());
  }
  TermPtr otherwise() {
    TermPtr left = either();
    while (take("??")) left = make(Op::Otherwise, std::move(left), either());
    return left;
  }
  TermPtr either() {
    TermPtr left = both();
    while (word("or")) advance(), left = make(Op::Or, std::move(left), both());
    return left;
  }
  TermPtr both() {
    TermPtr left = negated();
    while (word("and")) advance(), left = make(Op::And, std::move(left), negated());
    return left;
  }
  TermPtr negated() {
    const Depth guard(depth_, token_.column);
    if (!word("not")) return comparison();
    advance();
    return make(Op::Not, negated());
  }
  TermPtr comparison() {
    TermPtr left = sum();
    for (auto [text, op] : {Binary{"==", Op::Equal},
                            {"!=", Op::Differs},
                            {"<=", Op::AtMost},
                            {">=", Op::AtLeast},
                            {"<", Op::Less},
                            {">", Op::Greater}})
      if (take(text)) return make(op, std::move(left), sum());
    return left;
  }
  TermPtr sum() {
    TermPtr left = product();
    for (;;) {
      if (take("+"))
        left = make(Op::Add, std::move(left), product());
      else if (take("-"))
        left = make(Op::Subtract, std::move(left), product());
      else
        return left;
    }
  }
  TermPtr product() {
    TermPtr left = minus();
    for (;;) {
      if (take("*"))
        left = make(Op::Multiply, std::move(left), minus());
      else if (take("/"))
        left = make(Op::Divide, std::move(left), minus());
      else if (take("//"))
        left = make(Op::DivideDown, std::move(left), minus());
      else if (take("%"))
        left = make(Op::Remainder, std::move(left), minus());
      else
        return left;
    }
  }
  TermPtr minus() {
    const Depth guard(depth_, token_.column);
    if (take("-")) return make(Op::Minus, minus());
    TermPtr base = postfix();
    return take("**") ? make(Op::Power, std::move(base), minus()) : std::move(base);
  }
  TermPtr postfix() {
    TermPtr term = primary();
    for (;;) {
      if (take(".")) {
        if (token_.kind != Token::Kind::Word) fail("expected a key after '.'", token_.column);
        term = make(Op::Member, std::move(term));
        term->text = token_.text;
        advance();
      } else if (take("[")) {
        term = make(Op::Index, std::move(term), choice());
        expect("]");
      } else {
        return term;
      }
    }
  }
  TermPtr literal(nlohmann::json value) {
    auto term = std::make_unique<Term>();
    term->value = std::move(value);
    advance();
    return term;
  }
  TermPtr primary() {
    const Token token = token_;
    switch (token.kind) {
      case Token::Kind::Number:
        return literal(number(token));
      case Token::Kind::Text:
        return literal(token.text);
      case Token::Kind::Word:
        return named(token);
      default:
        break;
    }
    if (take("(")) {
      TermPtr inside = choice();
      expect(")");
      return inside;
    }
    if (take("[")) {
      TermPtr list = make(Op::List, choice());
      while (take(",")) list->children.push_back(choice());
      expect("]");
      return list;
    }
    fail(token.kind == Token::Kind::End ? "the expression ends too early" : "unexpected '" + token.text + "'",
         token.column);
  }
  static nlohmann::json number(const Token& token) {
    const char *begin = token.text.data(), *end = begin + token.text.size();
    if (token.text.find_first_of(".eE") == std::string::npos) {
      int64_t value = 0;
      if (auto [at, error] = std::from_chars(begin, end, value); error != std::errc() || at != end)
        fail("the number is too large", token.column);
      return value;
    }
    double value = 0;
    if (auto [at, error] = std::from_chars(begin, end, value); error != std::errc() || at != end)
      fail("not a number: " + token.text, token.column);
    return value;
  }
  TermPtr named(const Token& token) {
    if (token.text == "true") return literal(true);
    if (token.text == "false") return literal(false);
    if (token.text == "null") return literal(nullptr);
    if (token.text == "and" || token.text == "or" || token.text == "not")
      fail("unexpected '" + token.text + "'", token.column);
    auto term = std::make_unique<Term>();
    term->text = token.text;
    term->op = Op::Name;
    advance();
    if (!take("(")) return term;
    term->op = token.text == "starts"     ? Op::Starts
               : token.text == "split"    ? Op::Split
               : token.text == "last"     ? Op::Last
               : token.text == "length"   ? Op::Length
               : token.text == "contains" ? Op::Contains
               : token.text == "expand"   ? Op::Expand
               : token.text == "pair"     ? Op::Pair
               : token.text == "times"    ? Op::Times
               : token.text == "sum"      ? Op::Sum
               : token.text == "run"      ? Op::Run
               : token.text == "log"      ? Op::Log
               : token.text == "has"      ? Op::Has
                                          : Op::Name;
    if (term->op == Op::Name)
      fail("no function \"" + token.text +
               "\"; there are starts, split, last, length, contains, expand, pair, times, sum, run, log, has",
           token.column);
    do term->children.push_back(choice());
    while (take(","));
    expect(")");
    const bool one = term->op == Op::Last || term->op == Op::Length || term->op == Op::Expand || term->op == Op::Pair ||
                     term->op == Op::Log || term->op == Op::Has;
    const size_t wanted = one ? 1 : 2;
    if (term->children.size() != wanted)
      fail(token.text + "() takes " + std::to_string(wanted) + " values", token.column);
    if (term->op == Op::Has && term->children[0]->op != Op::Name)
      fail("has() takes a key of config.json", token.column);
    return term;
  }

  Lexer lexer_;
  Token token_;
  int depth_ = 0;
};

}  // namespace

Expression::Expression(std::string_view text) {
  if (text.size() > longest) throw ExpressionError("an expression has at most 2000 characters");
  root_ = Parser(text).parse_all();
}
Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;

}  // namespace pm::policy
