// SPDX-License-Identifier: Apache-2.0
// Tests constraints: which tokens may come next, what ends a text, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/tokenizer/token_matcher.h"

namespace pm {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Tokenizer opened(const std::string& text) {
  test::TempFolder folder;
  test::write_tokenizer(folder.path(), text);
  return Tokenizer::open(folder.path());
}

const Tokenizer& bytes() {
  static const Tokenizer tokenizer = opened(test::byte_level_json());
  return tokenizer;
}

std::vector<int32_t> ids_in(const TokenMatcher::Mask& mask) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < mask.words.size() * 32; ++id)
    if (mask.words[id / 32] >> (id % 32) & 1) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

std::string refusal(const Tokenizer& tokenizer, ConstraintKind kind, const std::string& text) {
  try {
    TokenMatcher::compile(tokenizer, kind, text, false);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "accepted";
}

/// Returns a text of random tokens that the mask allows; it ends where it may, or where nothing may follow.
std::string random_text(const Tokenizer& tokenizer, TokenMatcher matcher, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  while (ids.size() < 3000) {
    const TokenMatcher::Mask mask = matcher.mask();
    const std::vector<int32_t> allowed = ids_in(mask);
    if (allowed.empty() || (mask.may_end && random() % 3 == 0)) break;
    ids.push_back(allowed[random() % allowed.size()]);
    if (matcher.append(ids.back())) break;
  }
  return tokenizer.decode(ids);
}

TEST(TokenMatcher, TheMaskHasTheTokensThatMayComeNext) {
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::Choice, R"(["yes", "yea", "no"])", false);
  EXPECT_EQ(ids_in(matcher.mask()), (std::vector<int32_t>{'n', 'y'}));
  EXPECT_FALSE(matcher.append('y'));
  EXPECT_FALSE(matcher.append('e'));
  const TokenMatcher::Mask mask = matcher.mask();
  EXPECT_EQ(ids_in(mask), (std::vector<int32_t>{'a', 's'}));
  EXPECT_FALSE(mask.may_end);
  EXPECT_TRUE(matcher.append('s')) << "nothing may follow";
}

TEST(TokenMatcher, AnOpenEndIsAllowedWithTheTokensThatMayFollow) {
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::Regex, "^a+b?$", false);
  EXPECT_FALSE(matcher.mask().may_end);
  EXPECT_FALSE(matcher.append('a'));
  const TokenMatcher::Mask mask = matcher.mask();
  EXPECT_TRUE(mask.may_end);
  EXPECT_EQ(ids_in(mask), (std::vector<int32_t>{'a', 'b'}));
  EXPECT_TRUE(matcher.append('b'));
}

TEST(TokenMatcher, AForkHasAStateOfItsOwn) {
  TokenMatcher one = TokenMatcher::compile(bytes(), ConstraintKind::Choice, R"(["ab", "cd"])", false);
  TokenMatcher other = one.fork();
  one.append('a');
  EXPECT_EQ(ids_in(one.mask()), (std::vector<int32_t>{'b'}));
  EXPECT_EQ(ids_in(other.mask()), (std::vector<int32_t>{'a', 'c'}));
}

TEST(TokenMatcher, ATokenThatIsNotAllowedIsRefused) {
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::Choice, R"(["ab"])", false);
  EXPECT_THROW(matcher.append('x'), Error);
  EXPECT_THROW(TokenMatcher::compile(bytes(), ConstraintKind::Regex, "a", false).append(100000), Error);
  EXPECT_THROW(TokenMatcher::compile(bytes(), ConstraintKind::Regex, "a", false).append(-1), Error);
}

TEST(TokenMatcher, SpecialTokensAreNoText) {
  const int32_t special = 256;
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::Regex, "[^b]*", false);
  for (int i = 0; i < 4; ++i) {
    const std::vector<int32_t> allowed = ids_in(matcher.mask());
    EXPECT_EQ(std::count(allowed.begin(), allowed.end(), special), 0);
    matcher.append('<');
  }
}

/// Returns whether a JSON string of this pattern may begin with an escaped character.
bool may_escape(const std::string& pattern, char character) {
  const std::string schema = json{{"type", "string"}, {"pattern", pattern}}.dump();
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::JsonSchema, schema, false);
  const auto allows = [&](char c) {
    const std::vector<int32_t> ids = ids_in(matcher.mask());
    return std::find(ids.begin(), ids.end(), c) != ids.end();
  };
  matcher.append('"');
  if (!allows('\\')) return false;
  matcher.append('\\');
  return allows(character);
}

TEST(TokenMatcher, ANegatedClassHoldsWhereJsonEscapesItsCharacters) {
  EXPECT_TRUE(may_escape("^[^x]{2,6}$", '"'));
  EXPECT_FALSE(may_escape("^[^\"]{2,6}$", '"'));
  EXPECT_FALSE(may_escape("^[^x\"\n]{2,6}$", '"'));
  EXPECT_TRUE(may_escape("^[^\"]{2,6}$", '\\'));
  EXPECT_FALSE(may_escape("^[^\\\\]{2,6}$", '\\'));
  EXPECT_TRUE(may_escape("^[^\\\\]{2,6}$", '"'));
  const std::string names = R"({"type": "object", "patternProperties": {"^[^\"]{1,3}$": {"type": "array", "minItems": 1,
      "items": {"type": "string", "pattern": "^[^\"]{1,3}$"}}}, "additionalProperties": false})";
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::JsonSchema, names, false);
    const std::string text = random_text(bytes(), matcher.fork(), seed);
    const json object = json::parse(text, nullptr, false);
    ASSERT_TRUE(object.is_object()) << text;
    for (const auto& [name, list] : object.items()) {
      EXPECT_EQ(name.find('"'), name.npos) << text;
      for (const json& item : list) EXPECT_EQ(item.get<std::string>().find('"'), std::string::npos) << text;
    }
  }
}

TEST(TokenMatcher, CharactersOfSeveralBytesAreWhole) {
  for (const std::string& vocabulary : {test::byte_level_json(), test::byte_fallback_json()}) {
    const Tokenizer tokenizer = opened(vocabulary);
    const TokenMatcher matcher =
        TokenMatcher::compile(tokenizer, ConstraintKind::Regex, "[\u00e4\u4e16\U0001F600]{3}", false);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const std::string text = random_text(tokenizer, matcher.fork(), seed);
      EXPECT_EQ(text.find("\xEF\xBF\xBD"), text.npos) << text;
      EXPECT_GE(text.size(), 6);
    }
  }
}

TEST(TokenMatcher, ATextThatBeginsAtNothingDoesNotBeginWithATokenThatLosesItsSpace) {
  const Tokenizer tokenizer = opened(test::byte_fallback_json());
  TokenMatcher inside = TokenMatcher::compile(tokenizer, ConstraintKind::Regex, " ?b", false);
  TokenMatcher start = TokenMatcher::compile(tokenizer, ConstraintKind::Regex, " ?b", true);
  EXPECT_EQ(ids_in(inside.mask()), (std::vector<int32_t>{' ', 257, 258})) << "the token of b, not its byte";
  EXPECT_EQ(ids_in(start.mask()), (std::vector<int32_t>{258}));
}

TEST(TokenMatcher, TokensWithoutADecoderAreJoinedBySpaces) {
  const Tokenizer tokenizer = opened(test::word_level_json());
  TokenMatcher matcher = TokenMatcher::compile(tokenizer, ConstraintKind::Regex, " hello( world)+", false);
  EXPECT_EQ(ids_in(matcher.mask()), (std::vector<int32_t>{0}));
  matcher.append(0);
  EXPECT_EQ(ids_in(matcher.mask()), (std::vector<int32_t>{1}));
}

const json schemas = json::parse(R"([
  {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
   "required": ["name", "age"], "additionalProperties": false},
  {"type": "array", "items": {"enum": ["a", 1, null, "\u00e9\"\\"]}, "minItems": 1, "maxItems": 4},
  {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}],
   "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "value": {"type": "number", "maximum": 9}},
                      "required": ["value"], "additionalProperties": false}}},
  {"type": "object"}, true, {"const": {"a": [1, {"b": null}]}}])");

TEST(TokenMatcher, ARandomTextOfASchemaIsJsonThatFollowsIt) {
  for (const json& schema : schemas) {
    const TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::JsonSchema, schema.dump(), false);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const std::string text = random_text(bytes(), matcher.fork(), seed);
      if (text.size() >= 2900) continue;  // a random object may have no end
      EXPECT_TRUE(json::accept(text)) << schema << "\n" << text;
    }
  }
}

/// Returns whether a text follows a schema.
bool follows(const std::string& schema, const std::string& text) {
  TokenMatcher matcher = TokenMatcher::compile(bytes(), ConstraintKind::JsonSchema, schema, false);
  try {
    for (size_t i = 0; i < text.size(); ++i)
      if (matcher.append(static_cast<uint8_t>(text[i]))) return i + 1 == text.size();
  } catch (const Error&) {
    return false;
  }
  return matcher.mask().may_end;
}

TEST(TokenMatcher, ASchemaIsHeldAsJsonSchemaDefinesIt) {
  struct Case {
    std::string schema, valid, invalid;
  };
  const std::string old = R"("$schema": "http://json-schema.org/draft-07/schema#")";
  const std::vector<Case> cases = {
      // a name has one spelling
      {R"({"properties": {"ab": {"type": "integer"}}})", R"({"ab":1,"c":"x"})", R"({"\u0061b":"x"})"},
      {R"({"patternProperties": {"^a": {"type": "integer"}}})", R"({"ab":1,"c":"x"})", R"({"\u0061b":"x"})"},
      // items of old drafts
      {R"({"prefixItems": [{"type": "null"}], "additionalItems": {}})", "[null,1]", "[1]"},
      {"{" + old + R"(, "items": [{}], "anyOf": [{}], "additionalItems": false})", "[1]", "[1,2]"},
      {"{" + old + R"(, "items": [{"pattern": "^[^\"]$"}]})", R"(["a"])", R"(["\""])"},
      {R"({"$ref": "#/other", "other": {"pattern": "^[^\"]$"}})", R"("a")", R"("\"")"},
      // excluded ends of ranges
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5})", "0.25", "0"},
      {R"({"type": "number", "exclusiveMaximum": -1, "minimum": -1.5})", "-1.25", "-1"},
      {R"({"minimum": 5, "anyOf": [{}], "exclusiveMinimum": true})", "6", "5"},
      // expressions of ECMA-262
      {R"({"pattern": "^.$"})", R"("a")", R"("\r")"},
      {R"({"pattern": "(?s)^.$"})", R"("\r")", R"("\r\r")"},
      {R"({"pattern": "^(?:(?s:.)|b.)$"})", R"("\n")", R"("b\n")"},
      {R"({"pattern": "^\\s$"})", "\"\uFEFF\"", "\"\u0085\""},
      {R"({"pattern": "^[\\S]$"})", "\"\u0085\"", "\"\uFEFF\""},
      {R"({"pattern": "^[[a&&b]$"})", R"("&")", R"("c")"},
      {R"({"pattern": "^[+--]\\<[\\u0041-\\x43]$"})", R"(",<B")", R"("/<B")"},
      {R"({"pattern": "^[^]$"})", R"("\n")", R"("")"},
      // dates
      {R"({"format": "date"})", R"("2000-02-29")", R"("1900-02-29")"},
      {R"({"format": "date-time"})", R"("2024-02-29T23:59:59Z")", R"("2023-02-29T23:59:59Z")"},
      {R"({"format": "time", "pattern": "Z$"})", R"("10:20:30Z")", R"("10:20:60Z")"},
  };
  for (const Case& one : cases) {
    EXPECT_TRUE(follows(one.schema, one.valid)) << one.schema << " " << one.valid;
    EXPECT_FALSE(follows(one.schema, one.invalid)) << one.schema << " " << one.invalid;
  }
}

TEST(TokenMatcher, WhatASchemaCannotHoldExactlyIsRefused) {
  const auto schema = [](const char* text) { return refusal(bytes(), ConstraintKind::JsonSchema, text); };
  EXPECT_THAT(schema(R"({"minProperties": 2})"), HasSubstr("minProperties")) << "a name may come twice";
  EXPECT_EQ(schema(R"({"minProperties": 2, "required": ["a"]})"), "accepted");
  EXPECT_THAT(schema(R"({"enum": [[9007199254740993]]})"), HasSubstr("cannot be held exactly"));
  EXPECT_THAT(schema(R"({"type": "integer", "minimum": 9007199254740993})"), HasSubstr("cannot be held exactly"));
  EXPECT_THAT(schema(R"({"type": "integer", "exclusiveMaximum": 9007199254740993})"), HasSubstr("exactly"));
  EXPECT_EQ(schema(R"({"type": "integer", "maximum": 9223372036854775807})"), "accepted");
  EXPECT_THAT(schema(R"({"const": {"a": "\u0001"}})"), HasSubstr("U+0001"));
  EXPECT_THAT(schema(R"({"multipleOf": 7177897})"), HasSubstr("too large or too fine")) << "it would take gigabytes";
  EXPECT_THAT(schema(R"({"properties": {"enum": {"multipleOf": 7177897}}})"), HasSubstr("too large or too fine"));
  EXPECT_THAT(schema(R"({"$ref": "#/const", "const": {"multipleOf": 7177897}})"), HasSubstr("names a constant"));
  EXPECT_THAT(schema(R"({"$ref": "#/%63onst", "const": {"multipleOf": 7177897}})"), HasSubstr("names a constant"));
  EXPECT_THAT(schema(R"({"$ref": "#/default", "default": {"multipleOf": 7177897}})"), HasSubstr("default"));
  EXPECT_EQ(schema(R"_({"$ref": "#/$defs/enum", "$defs": {"enum": {"default": {"pattern": "(?=a)"}}}})_"), "accepted");
  EXPECT_THAT(schema(R"({"allOf": [{"multipleOf": 641}, {"multipleOf": 643}]})"), HasSubstr("held together"));
  EXPECT_EQ(schema(R"({"properties": {"a": {"multipleOf": 641}, "b": {"multipleOf": 643}}})"), "accepted");
  EXPECT_THAT(schema(R"({"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]})"), HasSubstr("exclusive bound 0"));
  const std::string tagged = R"("definitions": {"a": {}}, "oneOf": [{"$ref": "#/definitions/a", "type": "array"},
      {"type": "null"}]})";
  EXPECT_EQ(schema(("{" + tagged).c_str()), "accepted");
  EXPECT_THAT(schema((R"({"$schema": "http://json-schema.org/draft-07/schema#", )" + tagged).c_str()),
              HasSubstr("beside a $ref"));
  EXPECT_THAT(schema(R"({"prefixItems": [{}], "items": [{}], "additionalItems": {}})"), HasSubstr("prefixItems"));
  for (const char* pattern : {"a++", "[]", "[]a]", "(?m)a", "\\\\A", "a{,2}", "\\\\x{41}", "a)", "[a"})
    EXPECT_THAT(schema((R"({"pattern": ")" + std::string(pattern) + R"("})").c_str()), HasSubstr("the pattern"));
}

TEST(TokenMatcher, RefusalsSayWhy) {
  using enum ConstraintKind;
  const auto schema = [](const char* text) { return refusal(bytes(), JsonSchema, text); };
  EXPECT_THAT(schema("{"), HasSubstr("not JSON"));
  EXPECT_THAT(schema("3"), HasSubstr("a schema is an object or true"));
  EXPECT_THAT(schema(R"({"type": "strin"})"), HasSubstr("strin"));
  EXPECT_THAT(schema(R"({"not": {"type": "string"}})"), HasSubstr("Unimplemented keys: [\"not\"]"));
  EXPECT_THAT(schema(R"({"type": "array", "uniqueItems": true})"), HasSubstr("uniqueItems"));
  EXPECT_THAT(schema(R"({"type": "string", "format": "colour"})"), HasSubstr("colour"));
  EXPECT_THAT(schema(R"({"$ref": "https://example.com/schema"})"), HasSubstr("example.com"));
  EXPECT_THAT(schema(R"({"oneOf": [{"minimum": 1}, {"maximum": 3}]})"), HasSubstr("use anyOf"));
  EXPECT_THAT(schema(R"({"type": "integer", "minimum": 3, "maximum": 1})"), HasSubstr("nsatisfiable"));
  EXPECT_THAT(schema(R"({"x-guidance": {"lenient": true}, "not": {}})"), HasSubstr("x-guidance"));
  EXPECT_THAT(refusal(bytes(), Regex, "a("), HasSubstr("unclosed group"));
  EXPECT_THAT(refusal(bytes(), Regex, "a\\"), HasSubstr("backslash"));
  EXPECT_THAT(refusal(bytes(), Regex, "(?=a)b"), HasSubstr("look-around"));
  EXPECT_THAT(refusal(bytes(), Regex, ""), HasSubstr("empty"));
  EXPECT_THAT(refusal(bytes(), Choice, "[]"), HasSubstr("at least one"));
  EXPECT_THAT(refusal(bytes(), Grammar, "start: other"), HasSubstr("other"));
  EXPECT_THAT(refusal(bytes(), Grammar, R"(start: %json {"x-guidance": {"lenient": true}, "not": {}})"),
              HasSubstr("x-guidance"));
  EXPECT_THAT(refusal(bytes(), Grammar, "start: \"[\" element \"]\"\nelement: %json {\"multipleOf\": 100003}\n"),
              HasSubstr("multipleOf"));
  EXPECT_THAT(refusal(bytes(), Grammar, "start: %json {\"type\": "), HasSubstr("not followed by JSON"));
  EXPECT_EQ(refusal(bytes(), Grammar,
                    "start: \"%json {\" /%json [{]/ %json {\"type\": \"null\"} // %json {\n"
                    "# %json [\n"),
            "accepted");
  EXPECT_THAT(refusal(bytes(), Regex, std::string(200'000, 'a')), HasSubstr("at most 131072"));
}

TEST(TokenMatcher, HugeConstraintsAreCompiledOrRefusedAndNeverEndTheProcess) {
  using enum ConstraintKind;
  EXPECT_EQ(refusal(bytes(), Regex, "((a{1000}){1000}){1000}"), "accepted");
  EXPECT_NE(refusal(bytes(), Regex, std::string(60'000, '(') + std::string(60'000, ')')), "accepted");
  EXPECT_NE(refusal(bytes(), Grammar, "start: " + std::string(60'000, '(') + "\"a\"" + std::string(60'000, ')')),
            "accepted");
  std::string chain = "start: r0\n";
  for (int i = 0; i < 7000; ++i) chain += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + "\n";
  EXPECT_EQ(refusal(bytes(), Grammar, chain + "r7000: \"a\""), "accepted");
}

TEST(TokenMatcher, AMaskOfALargeVocabularyTakesLittleTime) {
  const Tokenizer tokenizer = opened(test::large_byte_level_json(128'000));
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto milliseconds = [](auto time) { return std::chrono::duration<double, std::milli>(time).count(); };
  auto begin = now();
  const TokenMatcher first = TokenMatcher::compile(tokenizer, ConstraintKind::JsonSchema, schemas[0].dump(), false);
  std::printf("vocabulary of %zu tokens and the first schema: %.0f ms\n", tokenizer.vocab_size(),
              milliseconds(now() - begin));
  std::vector<double> times;
  for (const json& schema : schemas) {
    begin = now();
    const TokenMatcher compiled = TokenMatcher::compile(tokenizer, ConstraintKind::JsonSchema, schema.dump(), false);
    std::printf("compiling: %.1f ms\n", milliseconds(now() - begin));
    for (uint32_t seed = 0; seed < 10; ++seed) {
      std::mt19937 random(seed);
      TokenMatcher matcher = compiled.fork();
      for (int i = 0; i < 60; ++i) {
        begin = now();
        const TokenMatcher::Mask mask = matcher.mask();
        times.push_back(milliseconds(now() - begin));
        const std::vector<int32_t> allowed = ids_in(mask);
        if (allowed.empty() || matcher.append(allowed[random() % allowed.size()])) break;
      }
    }
  }
  std::sort(times.begin(), times.end());
  std::printf("%zu masks: median %.3f ms, P99 %.3f ms, longest %.3f ms\n", times.size(), times[times.size() / 2],
              times[times.size() * 99 / 100], times.back());
  EXPECT_LT(times[times.size() / 2], 20);
}

}  // namespace
}  // namespace pm
