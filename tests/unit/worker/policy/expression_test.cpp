// SPDX-License-Identifier: Apache-2.0
// The grammar as a table: text -> value, text -> complaint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/error.h"
#include "worker/policy/expression.h"

namespace pm::policy {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json config = json::parse(R"({
  "n": 12, "zero": 0, "x": 0.5, "name": "gated-gelu", "on": true, "off": false, "none": null, "list": [3, 4, 5],
  "inner": {"theta": 10000.0, "deep": {"k": 7}}, "types": [[["global", "local"], 2], [["x"], 1]], "max": 9223372036854775807
})");

json value_of(const std::string& text) { return Expression(text).evaluate({&config, {}, 3}); }

struct Case {
  const char* text;
  json value;
};
class Evaluates : public testing::TestWithParam<Case> {};

TEST_P(Evaluates, ToTheValue) {
  const json value = value_of(GetParam().text);
  EXPECT_EQ(value, GetParam().value) << GetParam().text << " = " << value;
  EXPECT_EQ(value.is_number_float(), GetParam().value.is_number_float()) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(Table, Evaluates,
                         testing::ValuesIn(std::vector<Case>{
                             {"1", 1},
                             {"1.5", 1.5},
                             {"1e-5", 1e-5},
                             {"'a b'", "a b"},
                             {"\"a\"", "a"},
                             {"true", true},
                             {"null", nullptr},
                             {"n", 12},
                             {"l", 3},
                             {"missing", nullptr},
                             {"none", nullptr},
                             {"missing ?? 4*n", 48},
                             {"none ?? missing ?? 2", 2},
                             {"n ?? 1", 12},
                             {"off ?? true", false},
                             {"zero ?? 1", 0},
                             {"1 + 2 * 3", 7},
                             {"(1 + 2) * 3", 9},
                             {"10 - 2 - 3", 5},
                             {"7 / 2", 3.5},
                             {"8 / 2", 4.0},
                             {"7 // 2", 3},
                             {"-7 // 2", -4},
                             {"5.3 * 7 // 2", 18},
                             {"0 - 0.5 // 1", 0},
                             {"-7 % 3", 2},
                             {"7 % 3", 1},
                             {"2 ** 3 ** 2", 512},
                             {"-2 ** 2", -4},
                             {"4 ** -0.5", 0.5},
                             {"2 ** -1", 0.5},
                             {"16 ** 0.5", 4.0},
                             {"n * x", 6.0},
                             {"-n", -12},
                             {"- -3", 3},
                             {"1 == 1.0", true},
                             {"'a' == 'b'", false},
                             {"n != 12", false},
                             {"n <= 12", true},
                             {"n < 12", false},
                             {"'a' < 'b'", true},
                             {"missing == null", true},
                             {"has(missing)", false},
                             {"has(none)", true},
                             {"has(n)", true},
                             {"on and off", false},
                             {"on or missing", true},
                             {"off and missing", false},
                             {"not off", true},
                             {"not on or on", true},
                             {"not off and on", true},
                             {"on ? 1 : 2", 1},
                             {"off ? 1 : on ? 2 : 3", 2},
                             {"missing ?? true ? 'a' : 'b'", "a"},
                             {"n > 3 ? n - 3 : missing", 9},
                             {"inner.theta", 10000.0},
                             {"inner.deep.k", 7},
                             {"inner.gone.k ?? 5", 5},
                             {"missing.theta ?? n", 12},
                             {"list[1]", 4},
                             {"n[1]", 12},
                             {"list[l - 1]", 5},
                             {"starts(name, 'gated-')", true},
                             {"split(name, '-')", json::array({"gated", "gelu"})},
                             {"last(split(name, '-'))", "gelu"},
                             {"last(list)", 5},
                             {"length(list)", 3},
                             {"contains(list, 4)", true},
                             {"contains(split(name, '-'), 'gel')", false},
                             {"contains(missing, 'gelu')", false},
                             {"split('M*-', '')", json::array({"M", "*", "-"})},
                             {"split(list, '-')", json::array({3, 4, 5})},
                             {"split(missing, '-')", nullptr},
                             {"length(split('', 'x'))", 1},
                             {"expand(types)", json::array({"global", "local", "global", "local", "x"})},
                             {"(missing ?? expand(types))[l]", "local"},
                             {"pair(4)", json::array({4, 4})},
                             {"pair(missing)", nullptr},
                             {"pair(missing ?? 7)[1]", 7},
                             {"[1, 2 + 3, 'x'][1]", 5},
                             {"times([2, 3], 4)", json::array({8, 12})},
                             {"times([2, 3], [4, 5])", json::array({8, 15})},
                             {"times(missing, 2)", nullptr},
                             {"sum([2, 3, 4], 2)", 5},
                             {"sum([2, 3, 4], 7)", 9},
                             {"run([2, 3], 1)", 0},
                             {"run([2, 3], 2)", 1},
                             {"run([2, 0, 3], 2)", 2},
                             {"run([2, 3], 5)", 2},
                             {"log(1)", 0.0},
                             {"log(2 ** 2) == 2 * log(2)", true},
                             {"log(missing)", nullptr},
                             {"l // 2 * 3 // 4", 0},
                             {"max", int64_t{9223372036854775807}},
                             {"64 % max", 64},
                             {"-7 % max", int64_t{9223372036854775800}},
                             {"(0 - max - 1) // 2", int64_t{-4611686018427387904}},
                             {"(0 - max - 1) // 3", int64_t{-3074457345618258603}}}));

struct Complaint {
  const char *text, *message;
};
class Complains : public testing::TestWithParam<Complaint> {};

TEST_P(Complains, WithWhatIsWrong) {
  try {
    const json value = value_of(GetParam().text);
    FAIL() << GetParam().text << " = " << value;
  } catch (const ExpressionError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message)) << GetParam().text;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Complains,
                         testing::ValuesIn(std::vector<Complaint>{{"", "empty"},
                                                                  {"  ", "empty"},
                                                                  {"1 +", "ends too early"},
                                                                  {"(1", "expected ')'"},
                                                                  {"1 2", "unexpected '2' at column 3"},
                                                                  {"a ? 1", "expected ':'"},
                                                                  {"a b", "unexpected 'b'"},
                                                                  {"'abc", "closing quote at column 1"},
                                                                  {"a @ b", "unexpected '@' at column 3"},
                                                                  {"f(1)", "no function \"f\""},
                                                                  {"starts('a')", "takes 2 values"},
                                                                  {"last(1, 2)", "takes 1 values"},
                                                                  {"has(n + 1)", "has() takes a key"},
                                                                  {"a.1", "expected a key"},
                                                                  {"and", "unexpected 'and'"},
                                                                  {"1 == 2 == 3", "unexpected '=='"},
                                                                  {"99999999999999999999", "too large"},
                                                                  {"1e999", "not a number"},
                                                                  {"1e", "not a number"},
                                                                  {"missing + 1", "no \"missing\""},
                                                                  {"missing ? 1 : 2", "no \"missing\""},
                                                                  {"inner.gone + 1", "gone"},
                                                                  {"name + 1", "expected numbers"},
                                                                  {"n ? 1 : 2", "neither true nor false"},
                                                                  {"1 / zero", "division by 0"},
                                                                  {"1 // zero", "division by 0"},
                                                                  {"1.5 % 1", "whole numbers"},
                                                                  {"max + 1", "2^63"},
                                                                  {"max * 2", "2^63"},
                                                                  {"10 ** 40", "2^63"},
                                                                  {"2 ** 100000000", "exponent"},
                                                                  {"(-1) ** 0.5", "not a number"},
                                                                  {"0 ** -1", "not a number"},
                                                                  {"list[3]", "element 3 of a list of 3"},
                                                                  {"list[-1]", "element -1"},
                                                                  {"name[0]", "expected a list"},
                                                                  {"n.x", "expected an object"},
                                                                  {"list < 3", "cannot be compared"},
                                                                  {"last(types[0][1])", "last()"},
                                                                  {"length(n)", "length()"},
                                                                  {"length(missing)", "length() of null"},
                                                                  {"contains(name, 'gelu')", "contains()"},
                                                                  {"split(n, '-')", "not a text"},
                                                                  {"expand(list)", "expand()"},
                                                                  {"pair(list)", "pair()"},
                                                                  {"times(list, [1])", "times()"},
                                                                  {"times(n, 2)", "times()"},
                                                                  {"sum(list, 'x')", "sum()"},
                                                                  {"run(n, 1)", "run()"},
                                                                  {"log(0)", "log() of 0, expected a number above 0"},
                                                                  {"log('x')", "log()"},
                                                                  {"starts(n, 'a')", "not a text"}}));

TEST(Expression, DepthAndLengthAreBounded) {
  EXPECT_THROW(Expression(std::string(5000, '(')), ExpressionError);
  EXPECT_THROW(Expression(std::string(1000, '-') + "1"), ExpressionError);
  EXPECT_THROW(Expression(std::string(500, '(') + "1" + std::string(500, ')')), ExpressionError);
}

TEST(Expression, LayersAreUnknownOutsideOfLayers) {
  EXPECT_THROW(Expression("l").evaluate({&config, {}, std::nullopt}), ExpressionError);
}

TEST(Let, StandsBeforeConfigAndMayReadTheKeyThatItHides) {
  const Node lets = parse_yaml("n: n + 1\ntwice: 2 * n\n", "p.yaml");
  const Variables variables{&config, {&lets}, std::nullopt};
  EXPECT_EQ(Expression("twice").evaluate(variables), 26);
}

TEST(Let, CirclesEndInAnError) {
  const Node lets = parse_yaml("a: b\nb: a\n", "p.yaml");
  EXPECT_THROW(Expression("a + 1").evaluate({&config, {&lets}, std::nullopt}), ExpressionError);
}

TEST(Slots, ErrorsNameFileAndLine) {
  const Node node = parse_yaml("a: 1\nb: missing + 1\nc: n +\nd: x\n", "p.yaml");
  const Variables variables{&config, {}, std::nullopt};
  auto message = [&](const char* key) -> std::string {
    try {
      return std::to_string(evaluate_int(*node.get(key), variables));
    } catch (const Error& error) {
      return name_of(error.reason) + ": " + error.what();
    }
  };
  EXPECT_EQ(message("a"), "1");
  EXPECT_EQ(message("b"), "ModelUnreadable: config.json has no \"missing\", which p.yaml:2 needs");
  EXPECT_THAT(message("c"), HasSubstr("UnsupportedPolicy: p.yaml:3: the expression ends too early"));
  EXPECT_THAT(message("d"), HasSubstr("\"x\" (p.yaml:4) is 0.5 with this config.json, expected a whole number"));
}

TEST(Slots, NamesAreInterpolated) {
  const Node node = parse_yaml("a: \"h.{l + 1}.{on ? 'wi' : 'wo'}\"\nb: 'h.{l'\nc: 'h.}'\nd: '{x}'\n", "p.yaml");
  const Variables variables{&config, {}, 2};
  EXPECT_EQ(interpolate(*node.get("a"), variables), "h.3.wi");
  for (const char* key : {"b", "c", "d"}) EXPECT_THROW(interpolate(*node.get(key), variables), Error) << key;
}

}  // namespace
}  // namespace pm::policy
