// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/cel_terms.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>

#include "base/quantity.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

using k8s::Json;

constexpr int max_nesting = 32;

struct Token {
  enum class Kind { Word, Text, Number, Symbol, Unknown } kind = Kind::Unknown;
  std::string text;
  bool is(std::string_view symbol) const { return kind == Kind::Symbol && text == symbol; }
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Splits an expression into tokens.
class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  /// Returns nullopt when quotes alone do not show where strings end: comments, raw and triple-quoted strings.
  std::optional<std::vector<Token>> run() {
    while (at_ < text_.size() && readable_) {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) != 0)
        ++at_;
      else if (c == '"' || c == '\'')
        read_string(c);
      else if (in_word(c))
        read_word();
      else
        read_symbol();
    }
    return readable_ ? std::optional(std::move(tokens_)) : std::nullopt;
  }

 private:
  void read_string(char quote) {
    Token token{Token::Kind::Text, ""};
    const size_t begin = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\n') readable_ = false;
      if (text_[at_] != '\\') continue;
      token.kind = Token::Kind::Unknown;  // escapes are not decoded
      ++at_;
    }
    if (at_ >= text_.size() || text_.compare(at_, 2, std::string(2, quote)) == 0) readable_ = false;
    token.text = text_.substr(begin, at_ - begin);
    ++at_;
    tokens_.push_back(std::move(token));
  }

  void read_word() {
    const size_t begin = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    const bool digits = std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    const bool names = std::isdigit(static_cast<unsigned char>(word[0])) == 0;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) readable_ = false;  // r"..." and b"..."
    tokens_.push_back({digits ? Token::Kind::Number : names ? Token::Kind::Word : Token::Kind::Unknown, word});
  }

  void read_symbol() {
    static constexpr std::string_view pairs[] = {"&&", "||", "==", "!=", ">=", "<="};
    if (text_.compare(at_, 2, "//") == 0) readable_ = false;
    for (const std::string_view pair : pairs) {
      if (text_.compare(at_, 2, pair) != 0) continue;
      tokens_.push_back({Token::Kind::Symbol, std::string(pair)});
      at_ += 2;
      return;
    }
    tokens_.push_back({Token::Kind::Symbol, std::string(1, text_[at_++])});
  }

  const std::string& text_;
  size_t at_ = 0;
  bool readable_ = true;
  std::vector<Token> tokens_;
};

/// Reads one term. Each step fails the term when the next token is another one.
class TermReader {
 public:
  explicit TermReader(std::span<const Token> tokens) : tokens_(tokens) {}

  std::optional<DeviceTerm> run() {
    word("device");
    symbol(".");
    const std::string property = any(Token::Kind::Word);
    if (property == "driver") {
      comparison({Comparison::Equal});
      term_.value = any(Token::Kind::Text);
    } else if (property == "attributes") {
      term_.property = DeviceTerm::Property::Attribute;
      qualified_name();
      comparison({Comparison::Equal});
      literal();
    } else if (property == "capacity") {
      term_.property = DeviceTerm::Property::Capacity;
      qualified_name();
      compared_quantity();
    } else {
      fits_ = false;
    }
    return fits_ && at_ == tokens_.size() ? std::optional(std::move(term_)) : std::nullopt;
  }

 private:
  const Token* next() {
    if (at_ < tokens_.size()) return &tokens_[at_++];
    fits_ = false;
    return nullptr;
  }
  std::string any(Token::Kind kind) {
    const Token* token = next();
    fits_ = fits_ && token && token->kind == kind;
    return fits_ ? token->text : "";
  }
  void word(std::string_view wanted) { fits_ = any(Token::Kind::Word) == wanted && fits_; }
  void symbol(std::string_view wanted) { fits_ = any(Token::Kind::Symbol) == wanted && fits_; }

  /// Reads ["DOMAIN"].NAME.
  void qualified_name() {
    symbol("[");
    term_.domain = any(Token::Kind::Text);
    symbol("]");
    symbol(".");
    term_.name = any(Token::Kind::Word);
  }

  void comparison(std::initializer_list<Comparison> known) {
    static const std::pair<const char*, Comparison> all[] = {{"==", Comparison::Equal},
                                                             {">=", Comparison::AtLeast},
                                                             {"<=", Comparison::AtMost},
                                                             {">", Comparison::Above},
                                                             {"<", Comparison::Below}};
    const std::string found = any(Token::Kind::Symbol);
    for (const auto& [symbol, comparison] : all) {
      if (found != symbol || std::find(known.begin(), known.end(), comparison) == known.end()) continue;
      term_.comparison = comparison;
      return;
    }
    fits_ = false;
  }

  void literal() {
    const Token* token = next();
    if (!token) return;
    const bool negative = token->is("-");
    if (negative) token = next();
    if (!token) return;
    if (token->kind == Token::Kind::Number) {
      const auto value = parse_integer((negative ? "-" : "") + token->text);
      fits_ = fits_ && value;
      term_.value = value.value_or(0);
    } else if (!negative && token->kind == Token::Kind::Text) {
      term_.value = token->text;
    } else if (!negative && token->kind == Token::Kind::Word && (token->text == "true" || token->text == "false")) {
      term_.value = token->text == "true";
    } else {
      fits_ = false;
    }
  }

  /// Reads .compareTo(quantity("Q")) >= 0.
  void compared_quantity() {
    symbol(".");
    word("compareTo");
    symbol("(");
    word("quantity");
    symbol("(");
    const auto quantity = base::parse_quantity(any(Token::Kind::Text));
    symbol(")");
    symbol(")");
    comparison({Comparison::Equal, Comparison::AtLeast, Comparison::AtMost, Comparison::Above, Comparison::Below});
    fits_ = any(Token::Kind::Number) == "0" && fits_ && quantity;
    term_.value = quantity.value_or(0);
  }

  const std::span<const Token> tokens_;
  size_t at_ = 0;
  bool fits_ = true;
  DeviceTerm term_;
};

/// Returns where the tokens at depth 0 are that `is` accepts; nullopt for brackets that do not match.
template <class Is>
std::optional<std::vector<size_t>> at_depth_0(std::span<const Token> tokens, Is is) {
  std::vector<size_t> out;
  std::string open;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (open.empty() && is(tokens[i])) out.push_back(i);
    if (tokens[i].kind != Token::Kind::Symbol) continue;
    const char c = tokens[i].text[0];
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c != ')' && c != ']' && c != '}') continue;
    if (open.empty() || open.back() != (c == ')' ? '(' : c == ']' ? '[' : '{')) return std::nullopt;
    open.pop_back();
  }
  return open.empty() ? std::optional(std::move(out)) : std::nullopt;
}

/// Returns true for tokens that one pair of parentheses encloses.
bool enclosed(std::span<const Token> tokens) {
  if (tokens.size() < 2 || !tokens.front().is("(") || !tokens.back().is(")")) return false;
  return at_depth_0(tokens.subspan(1, tokens.size() - 2), [](const Token&) { return false; }).has_value();
}

void read_conjunction(std::span<const Token> tokens, int nesting, std::vector<DeviceTerm>& terms) {
  if (nesting > max_nesting) return;
  if (enclosed(tokens)) return read_conjunction(tokens.subspan(1, tokens.size() - 2), nesting + 1, terms);
  const auto others = at_depth_0(tokens, [](const Token& token) { return token.is("||") || token.is("?"); });
  if (!others || !others->empty()) return;
  auto ends = *at_depth_0(tokens, [](const Token& token) { return token.is("&&"); });
  if (ends.empty()) {
    if (auto term = TermReader(tokens).run()) terms.push_back(std::move(*term));
    return;
  }
  ends.push_back(tokens.size());
  size_t begin = 0;
  for (const size_t end : ends) {
    read_conjunction(tokens.subspan(begin, end - begin), nesting + 1, terms);
    begin = end + 1;
  }
}

/// Returns the value of a qualified name in the attributes or capacities of a device; null when it has none.
const Json& qualified(const Json& values, const DeviceTerm& term, const std::string& driver) {
  static const Json nothing;
  if (!values.is_object()) return nothing;
  auto found = values.find(term.domain + "/" + term.name);
  if (found == values.end() && term.domain == driver) found = values.find(term.name);
  return found == values.end() ? nothing : *found;
}

bool equals(const DeviceTerm& term, const Json& attribute) {
  if (const auto* text = std::get_if<std::string>(&term.value)) return at(attribute, "/string") == *text;
  if (const auto* number = std::get_if<int64_t>(&term.value)) return integer_at(attribute, "/int") == *number;
  return at(attribute, "/bool") == std::get<bool>(term.value);
}

bool compares(const DeviceTerm& term, int64_t found) {
  const int64_t wanted = std::get<int64_t>(term.value);
  switch (term.comparison) {
    case Comparison::Equal:
      return found == wanted;
    case Comparison::AtLeast:
      return found >= wanted;
    case Comparison::AtMost:
      return found <= wanted;
    case Comparison::Above:
      return found > wanted;
    case Comparison::Below:
      return found < wanted;
  }
  return true;
}

}  // namespace

std::vector<DeviceTerm> read_terms(const std::string& expression) {
  std::vector<DeviceTerm> terms;
  if (const auto tokens = Lexer(expression).run()) read_conjunction(*tokens, 0, terms);
  return terms;
}

bool fulfils(const DeviceTerm& term, const std::string& driver, const Json& device) {
  if (term.property == DeviceTerm::Property::Driver) return std::get<std::string>(term.value) == driver;
  if (term.property == DeviceTerm::Property::Attribute)
    return equals(term, qualified(at(device, "/attributes"), term, driver));
  const auto found = base::quantity_of(at(qualified(at(device, "/capacity"), term, driver), "/value"));
  return found && compares(term, *found);
}

}  // namespace pm::op
