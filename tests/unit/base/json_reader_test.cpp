// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"

#include <gtest/gtest.h>

namespace pm::base {
namespace {

using nlohmann::json;

template <class Read>
std::string refusal(const Read& read) {
  try {
    read();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// Errors of another program: null is absent, and a field "is" something.
struct OtherErrors {
  static constexpr bool null_is_absent = true;
  [[noreturn]] static void fail(const std::string& path, const std::string& found, const std::string& expected) {
    throw std::runtime_error(path + " is " + found + "; allowed: " + expected);
  }
  [[noreturn]] static void missing(const std::string& path) { throw std::runtime_error("no " + path); }
  static std::string describe(const json& found) { return std::string(found.type_name()); }
};

TEST(JsonReader, ReadsWhatIsThere) {
  const json object = {{"n", 3}, {"on", true}, {"text", "abc"}, {"list", {1, 2}}, {"inner", {{"n", 4}}}};
  const JsonReader reader(object, "plan");
  EXPECT_EQ(reader.integer("n", 1, 3), 3);
  EXPECT_EQ(reader.integer("absent", 1, 3, 2), 2);
  EXPECT_EQ(reader.optional_integer("absent", 1, 3), std::nullopt);
  EXPECT_TRUE(reader.flag("on", false));
  EXPECT_TRUE(reader.flag("absent", true));
  EXPECT_EQ(reader.text("text", 3), "abc");
  EXPECT_EQ(reader.text("absent", 3, "x"), "x");
  EXPECT_EQ(reader.list("list", 2).size(), 2u);
  EXPECT_EQ(reader.object("inner").integer("n", 0, 9), 4);
  EXPECT_EQ(reader.object("inner").path("n", 7), "plan.inner.n[7]");
}

TEST(JsonReader, SaysWhatItFoundAndWhatItExpected) {
  const json object = {{"n", 9},          {"big", UINT64_MAX}, {"half", 0.5},
                       {"null", nullptr}, {"text", "a\nb"},    {"list", {1, 2}}};
  const JsonReader reader(object, "plan");
  EXPECT_EQ(refusal([&] { reader.integer("n", 1, 3); }), "plan.n: found 9, expected an integer from 1 to 3");
  EXPECT_EQ(refusal([&] { reader.integer("n", 10, INT64_MAX); }), "plan.n: found 9, expected an integer from 10 up");
  EXPECT_EQ(refusal([&] { reader.integer("big", 0, 3); }),
            "plan.big: found 18446744073709551615, expected an integer from 0 to 3");
  EXPECT_EQ(refusal([&] { reader.integer("half", 0, 3, 1); }), "plan.half: found 0.5, expected an integer from 0 to 3");
  EXPECT_EQ(refusal([&] { reader.integer("null", 0, 3, 1); }),
            "plan.null: found null, expected an integer from 0 to 3");
  EXPECT_EQ(refusal([&] { reader.integer("absent", 1, 3); }), "plan.absent is missing");
  EXPECT_EQ(refusal([&] { reader.flag("n", true); }), "plan.n: found 9, expected true or false");
  EXPECT_EQ(refusal([&] { reader.text("text", 2); }),
            "plan.text: found a text of 3 bytes, expected printable text of at most 2 bytes");
  EXPECT_EQ(refusal([&] { reader.text("text", 3); }),
            "plan.text: found a control character, expected printable text of at most 3 bytes");
  EXPECT_EQ(refusal([&] { reader.list("list", 1); }),
            "plan.list: found a list of 2 items, expected a list of at most 1 items");
  EXPECT_EQ(refusal([&] { reader.object("list"); }), "plan.list: found array, expected an object");
}

TEST(JsonReader, TakesItsErrorsFromItsParameter) {
  const json object = {{"n", "x"}, {"null", nullptr}};
  const BasicJsonReader<OtherErrors> reader(object, "");
  EXPECT_EQ(refusal([&] { reader.integer("n", 1, 3); }), "n is string; allowed: an integer from 1 to 3");
  EXPECT_EQ(refusal([&] { reader.integer("null", 1, 3); }), "no null");
  EXPECT_EQ(reader.optional_flag("null"), std::nullopt);
}

}  // namespace
}  // namespace pm::base
