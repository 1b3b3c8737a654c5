// SPDX-License-Identifier: Apache-2.0
// Tests forms of replies: what their grammars allow is parsed into the calls and answers that they demand. How texts
// are parsed is tested against transformers in tests/parity/test_replies.py.
#include "worker/tokenizer/reply_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/policy/document.h"
#include "worker/tokenizer/buffer.h"
#include "worker/tokenizer/token_matcher.h"

namespace pm {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Tokenizer bytes() {
  test::TempFolder folder;
  test::write_tokenizer(folder.path(), test::byte_level_json());
  return Tokenizer::open(folder.path());
}

std::vector<std::string> form_names() {
  Buffer text, error;
  EXPECT_EQ(tx_reply_form_json("", &text, &error), 0) << error.text();
  return json::parse(text.text()).get<std::vector<std::string>>();
}

ReplyForm form(const std::string& name) {
  const test::TempFolder folder;
  std::string problem;
  return *ReplyForm::find(folder.path(), name, &problem);
}

struct Message {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
};

Message parse(const ReplyForm& form, const std::string& prompt, const std::string& text, const json& tools) {
  Message message;
  ReplyParser parser = form.begin(prompt, tools.dump(), true);
  std::vector<ReplyEvent> events = parser.feed(text);
  for (ReplyEvent& event : parser.finish()) events.push_back(std::move(event));
  for (const ReplyEvent& event : events) {
    if (event.kind == ReplyEvent::Kind::Content) message.content += event.text;
    if (event.kind == ReplyEvent::Kind::Reasoning) message.reasoning += event.text;
    if (event.kind == ReplyEvent::Kind::Call) message.calls.emplace_back(event.text, "");
    if (event.kind == ReplyEvent::Kind::Arguments) message.calls.at(event.call).second += event.text;
  }
  return message;
}

/// Returns a text of tokens that the constraint allows, of letters a to e where there is a choice among many; nothing
/// where it is longer than `most`.
std::optional<std::string> random_text(const Tokenizer& tokenizer, const std::string& grammar, uint32_t seed,
                                       size_t most = 1500) {
  TokenMatcher matcher = TokenMatcher::compile(tokenizer, ConstraintKind::Reply, grammar, false);
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  while (ids.size() < most) {
    const TokenMatcher::Mask mask = matcher.mask();
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < 256; ++id)
      if (mask.words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
    if (mask.may_end && (allowed.empty() || random() % 2 == 0)) return tokenizer.decode(ids);
    if (allowed.empty()) return std::nullopt;
    // free text goes on to the end that the form has: '<', '[' or '/' more often than others
    ids.push_back(allowed[random() % allowed.size()]);
    if (matcher.append(ids.back())) return tokenizer.decode(ids);
  }
  return std::nullopt;
}

const json tools = json::parse(R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string", "enum": ["Z\u00fcrich", "a"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9},
    "where": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": false}},
    "required": ["city", "days"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "time"}}])");

TEST(ReplyForm, EveryPolicyNamesAForm) {
  const std::vector<std::string> known = form_names();
  size_t named = 0;
  for (const policy::Builtin& builtin : policy::builtins()) {
    const policy::Node policy = policy::parse_policy(std::string(builtin.text), std::string(builtin.name));
    const policy::Node* replies = policy.get("replies");
    if (!replies) continue;
    ++named;
    EXPECT_THAT(known, testing::Contains(replies->text)) << builtin.name;
  }
  EXPECT_GE(named, 25U);
}

TEST(ReplyForm, DemandedCallsAreParsedAsSuch) {
  const Tokenizer tokenizer = bytes();
  for (const std::string& name : form_names()) {
    const ReplyForm one = form(name);
    for (const std::string prompt : {"", "<function=", "[AVAILABLE_TOOLS]"}) {
      json request = {{"prompt", prompt}, {"reasoning", false}, {"tools", tools}, {"parallel", true}};
      std::string grammar;
      try {
        grammar = one.grammar(tokenizer, request.dump());
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("how a call is written")) << name;
        continue;
      }
      for (uint32_t seed = 0; seed < 12; ++seed) {
        const auto text = random_text(tokenizer, grammar, seed);
        if (!text) continue;  // reasoning without an end
        const Message message = parse(one, "", *text, tools);
        ASSERT_FALSE(message.calls.empty()) << name << ": " << *text;
        EXPECT_EQ(message.content, "") << name << ": " << *text;
        for (const auto& [called, arguments] : message.calls) {
          const json parsed = json::parse(arguments, nullptr, false);
          ASSERT_TRUE(parsed.is_object()) << name << ": " << *text;
          if (called == "time")
            EXPECT_EQ(parsed, json::object()) << *text;
          else
            EXPECT_TRUE(called == "weather" && parsed.at("days").is_number_integer()) << name << ": " << *text;
        }
      }
    }
  }
}

/// Returns whether a reply of the grammar may be this text.
bool accepts(const Tokenizer& tokenizer, const std::string& grammar, const std::string& text) {
  TokenMatcher matcher = TokenMatcher::compile(tokenizer, ConstraintKind::Reply, grammar, false);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto id = static_cast<unsigned char>(text[i]);
    if ((matcher.mask().words[id / 32] >> (id % 32) & 1) == 0) return false;
    if (matcher.append(id)) return i + 1 == text.size();
  }
  return matcher.mask().may_end;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << text;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}

TEST(ReplyForm, StrictCallsFollowTheirSchemaWhereTheReplyMayBeText) {
  const Tokenizer tokenizer = bytes();
  json strict = tools;
  strict[0]["function"]["strict"] = true;
  const json weather = json::array({tools[0]});
  int called = 0, behind_text = 0;
  for (const std::string& name : form_names()) {
    const ReplyForm one = form(name);
    for (const std::string prompt : {"", "<function=", "[AVAILABLE_TOOLS]"}) {
      const auto grammar_of = [&](const json& of, bool text_too) {
        return one.grammar(
            tokenizer,
            json{{"prompt", prompt}, {"reasoning", false}, {"tools", of}, {"parallel", false}, {"text_too", text_too}}
                .dump());
      };
      std::string grammar;
      try {
        grammar = grammar_of(strict, true);
      } catch (const Error&) {
        continue;  // it does not say how a call is written
      }
      EXPECT_TRUE(accepts(tokenizer, grammar, name == "harmony" ? "<|channel|>final<|message|>a <b>" : "a <b> {c} [d]"))
          << name;
      std::optional<std::string> call;
      for (uint32_t seed = 0; !call || parse(one, "", *call, tools).calls.empty() || call->find("think") != call->npos;
           ++seed) {
        ASSERT_LT(seed, 100U) << name;
        call = random_text(tokenizer, grammar_of(weather, false), seed, 600);
      }
      ++called;
      EXPECT_TRUE(accepts(tokenizer, grammar, *call)) << name << ": " << *call;
      EXPECT_FALSE(accepts(tokenizer, grammar, replaced(*call, "days", "nights"))) << name << ": " << *call;
      EXPECT_FALSE(accepts(tokenizer, grammar, replaced(*call, "weather", "whether"))) << name << ": " << *call;
      const auto behind = parse(one, "", "a " + *call, tools);
      if (behind.calls.empty() || name == "harmony") continue;  // whose answers have a delimiter
      ++behind_text;
      EXPECT_TRUE(accepts(tokenizer, grammar, "a " + *call)) << name << ": " << *call;
      EXPECT_FALSE(accepts(tokenizer, grammar, "a " + replaced(*call, "days", "nights"))) << name << ": " << *call;
    }
  }
  EXPECT_GT(called, 8);
  EXPECT_GT(behind_text, 6);
}

TEST(ReplyForm, ArgumentsOfToolsThatAreNotStrictAreAny) {
  const Tokenizer tokenizer = bytes();
  json strict = tools;
  strict[1]["function"]["strict"] = true;
  const auto grammar_of = [&](const std::string& name, const std::string& prompt) {
    return form(name).grammar(
        tokenizer, json{{"prompt", prompt}, {"reasoning", false}, {"tools", strict}, {"text_too", true}}.dump());
  };
  const auto chatml = [](const std::string& called, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + called + "\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  EXPECT_TRUE(accepts(tokenizer, grammar_of("chatml", ""), chatml("weather", R"({"nights": [1]})")));
  EXPECT_TRUE(accepts(tokenizer, grammar_of("chatml", ""), chatml("time", "{}")));
  EXPECT_FALSE(accepts(tokenizer, grammar_of("chatml", ""), chatml("time", R"({"a": 1})")));
  EXPECT_FALSE(accepts(tokenizer, grammar_of("chatml", ""), chatml("other", "{}")));
  EXPECT_TRUE(accepts(tokenizer, grammar_of("chatml", "<function="),
                      "<tool_call>\n<function=weather>\nany text\n</function>\n</tool_call>"));
}

TEST(ReplyForm, DelimitersOfACheckpointMayHaveSlashesAndLines) {
  const Tokenizer tokenizer = bytes();
  test::TempFolder folder;
  const json call = {{"open_pattern", "(?:<c\\/>|<d/>\n)"},
                     {"close", ";"},
                     {"content", "json"},
                     {"transform", {{"type", "function"}, {"function", "{content}"}}}};
  const json chatml = {{"open_pattern", "\\s*<tool_call>"},
                       {"close", "</tool_call>"},
                       {"repeats", true},
                       {"content", "json"},
                       {"transform", {{"type", "function"}, {"function", "{content}"}}}};
  const json fields = {{"tool_calls", chatml}, {"tool_calls:other", call}, {"content", {{"close", "<end>"}}}};
  std::ofstream(folder.path() / "tokenizer_config.json")
      << json{{"response_template", {{"start_anchor", "<a>"}, {"fields", fields}}}};
  std::string problem;
  const auto own = ReplyForm::find(folder.path(), "chatml", &problem);
  ASSERT_TRUE(own && problem.empty()) << problem;
  json strict = tools;
  strict[0]["function"]["strict"] = true;
  const std::string grammar =
      own->grammar(tokenizer, json{{"prompt", ""}, {"tools", strict}, {"text_too", true}}.dump());
  EXPECT_TRUE(accepts(tokenizer, grammar, "a <c> </c> <d/>b"));
  EXPECT_FALSE(accepts(tokenizer, grammar, "a <c/>"));
  EXPECT_FALSE(accepts(tokenizer, grammar, "a <d/>\nb"));
  EXPECT_TRUE(accepts(tokenizer, grammar, "a <tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>"));
}

TEST(ReplyForm, ADemandedToolWhoseSchemaCannotBeHeldTakesAnyObject) {
  const Tokenizer tokenizer = bytes();
  const auto call = [](const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  json request = {{"prompt", ""}, {"reasoning", false}};
  request["tools"] = json::parse(
      R"([{"function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}}])");
  const std::string grammar = form("chatml").grammar(tokenizer, request.dump());
  EXPECT_TRUE(accepts(tokenizer, grammar, call(R"({"a": [1]})")));
  EXPECT_FALSE(accepts(tokenizer, grammar, call("[1]")));
  EXPECT_FALSE(accepts(tokenizer, grammar, "text"));
}

TEST(ReplyForm, OneCallWhereNoneIsParallel) {
  const Tokenizer tokenizer = bytes();
  const ReplyForm one = form("chatml");
  const json request = {{"prompt", ""}, {"reasoning", false}, {"tools", tools}, {"parallel", false}};
  for (uint32_t seed = 0; seed < 12; ++seed)
    if (const auto text = random_text(tokenizer, one.grammar(tokenizer, request.dump()), seed)) {
      EXPECT_EQ(parse(one, "", *text, tools).calls.size(), 1U) << *text;
    }
}

TEST(ReplyForm, AnAnswerComesBehindReasoning) {
  const Tokenizer tokenizer = bytes();
  for (const std::string& name : form_names()) {
    const ReplyForm one = form(name);
    json request = {{"prompt", ""}, {"reasoning", false}, {"kind", 2}, {"text", R"(["yes", "no"])"}};
    for (uint32_t seed = 0; seed < 8; ++seed)
      if (const auto text = random_text(tokenizer, one.grammar(tokenizer, request.dump()), seed)) {
        EXPECT_THAT(parse(one, "", *text, nullptr).content, testing::AnyOf("yes", "no")) << name << ": " << *text;
      }
  }
}

TEST(ReplyForm, ReasoningThatThePromptBeginsHasToEnd) {
  const Tokenizer tokenizer = bytes();
  const ReplyForm one = form("chatml");
  const std::string prompt = "<|im_start|>assistant\n<think>\n";
  EXPECT_TRUE(one.begin(prompt, "", true).is_reasoning());
  EXPECT_FALSE(one.begin("<|im_start|>assistant\n", "", true).is_reasoning());
  const json request = {{"prompt", prompt}, {"reasoning", true}, {"kind", 2}, {"text", R"(["yes"])"}};
  TokenMatcher matcher =
      TokenMatcher::compile(tokenizer, ConstraintKind::Reply, one.grammar(tokenizer, request.dump()), false);
  for (const char c : std::string("yes, but <b> </think>\nyes")) {
    EXPECT_FALSE(matcher.mask().may_end);
    matcher.append(static_cast<unsigned char>(c));
  }
}

TEST(ReplyForm, AByteThatNoCharacterHasMayStandBeforeOneThatIsCut) {
  const ReplyForm chatml = form("chatml");
  for (const std::string text : {"a\xc3\xd0\x8b"
                                 "b",
                                 "\xe2\x82"
                                 "a\xe2\x82\xac",
                                 "\x80\xf0\x9f\x98\x80"}) {
    const std::string whole = parse(chatml, "", text, json::array()).content;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ReplyParser parser = chatml.begin("", "[]", true);
      std::string pieces;
      for (const std::string& piece : {text.substr(0, cut), text.substr(cut)})
        for (const ReplyEvent& event : parser.feed(piece)) pieces += event.text;
      for (const ReplyEvent& event : parser.finish()) pieces += event.text;
      EXPECT_EQ(pieces, whole) << "cut at " << cut;
    }
  }
}

TEST(ReplyForm, WhatAFormCannotHoldIsRefusedWithTheReason) {
  const Tokenizer tokenizer = bytes();
  const auto refusal = [&](const std::string& name, const json& parameters, bool strict = true) -> std::string {
    const json tool = {{"function", {{"name", "f"}, {"parameters", parameters}, {"strict", strict}}}};
    const json request = {{"prompt", ""}, {"tools", json::array({tool})}};
    try {
      TokenMatcher::compile(tokenizer, ConstraintKind::Reply, form(name).grammar(tokenizer, request.dump()), false);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const json pattern = {{"type", "object"}, {"properties", {{"a", {{"type", "string"}, {"pattern", "x"}}}}}};
  EXPECT_EQ(refusal("chatml", pattern), "accepted");
  EXPECT_THAT(refusal("glm", pattern), HasSubstr("pattern of a text"));
  EXPECT_THAT(refusal("glm", {{"type", "object"}, {"minProperties", 1}}), HasSubstr("minProperties"));
  EXPECT_THAT(refusal("chatml", {{"not", json::object()}}), HasSubstr("the tool f: Unimplemented keys"));
  EXPECT_EQ(refusal("glm", pattern, false), "accepted") << "its arguments are any";
  EXPECT_EQ(refusal("chatml", {{"not", json::object()}}, false), "accepted");
  EXPECT_THAT(refusal("mistral", json::object()), HasSubstr("how a call is written"));
}

}  // namespace
}  // namespace pm
