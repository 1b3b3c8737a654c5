// SPDX-License-Identifier: Apache-2.0
// Tests where chat templates are found, which variables they get and how they refuse.
// tests/parity/test_chat_templates.py compares with transformers.
#include "worker/tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm {
namespace {

using json = nlohmann::ordered_json;
using testing::HasSubstr;

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

/// Returns a folder whose tokenizer_config.json holds `settings`.
ChatTemplate opened(const json& settings) {
  test::TempFolder folder;
  write(folder.path() / "tokenizer_config.json", settings.dump());
  const auto found = ChatTemplate::find(folder.path());
  if (!found) throw std::runtime_error("no template was found");
  return *found;
}

json one_message(const std::string& text, json more = json::object()) {
  more["messages"] = json::array({{{"role", "user"}, {"content", text}}});
  return more;
}

std::string refusal(const ChatTemplate& chat, const json& conversation) {
  try {
    return "rendered: " + chat.render(conversation.dump());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::Request);
    return error.what();
  }
}

TEST(ChatTemplate, IsFoundInEveryPlaceInTheOrderOfTransformers) {
  test::TempFolder folder;
  EXPECT_FALSE(ChatTemplate::find(folder.path()));
  const auto says = [&] { return ChatTemplate::find(folder.path())->render(one_message("x").dump()); };
  write(folder.path() / "chat_template.json", R"({"chat_template": "of the processor"})");
  EXPECT_EQ(says(), "of the processor");
  write(folder.path() / "tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(says(), "of the processor");
  write(folder.path() / "tokenizer_config.json", R"({"chat_template": "of the config"})");
  EXPECT_EQ(says(), "of the config");
  write(folder.path() / "chat_template.jinja", "of the file");
  EXPECT_EQ(says(), "of the file");
}

TEST(ChatTemplate, OfNamedOnesTheToolTemplateIsForTools) {
  const json named =
      json::array({{{"name", "default"}, {"template", "plain"}}, {{"name", "tool_use"}, {"template", "with tools"}}});
  const auto chat = opened({{"chat_template", named}});
  EXPECT_EQ(chat.render(one_message("x").dump()), "plain");
  EXPECT_EQ(chat.render(one_message("x", {{"tools", json::array({json::object()})}}).dump()), "with tools");
  const auto nameless = opened({{"chat_template", json::array({{{"name", "rag"}, {"template", "x"}}})}});
  EXPECT_THAT(refusal(nameless, one_message("x")), HasSubstr("rag"));

  test::TempFolder folder;
  write(folder.path() / "chat_template.jinja", "plain");
  write(folder.path() / "additional_chat_templates" / "tool_use.jinja", "with tools");
  EXPECT_EQ(ChatTemplate::find(folder.path())->render(one_message("x", {{"tools", json::array()}}).dump()),
            "with tools");
}

TEST(ChatTemplate, TokensAndMoreOfTheRequestAreThere) {
  const auto chat =
      opened({{"chat_template",
               "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ enable_thinking }}|{{ add_generation_prompt }}"},
              {"bos_token", "<b>"},
              {"eos_token", {{"__type", "AddedToken"}, {"content", "<e>"}}}});
  EXPECT_EQ(
      chat.render(one_message("x", {{"kwargs", {{"enable_thinking", false}}}, {"add_generation_prompt", true}}).dump()),
      "<b>|<e>||False|True");
}

TEST(ChatTemplate, ValuesPrintAsPythonPrintsThem) {
  const auto chat =
      opened({{"chat_template",
               "{{ kw }} {{ kw | tojson }} {{ kw | tojson(indent=2, sort_keys=true) }} {{ kw | string | length }}"}});
  const auto text =
      chat.render(R"({"messages": [], "kwargs": {"kw": {"z": [1, 2.0, 1e20, true, null], "a": "it's \"q\" é\n"}}})");
  EXPECT_EQ(text,
            "{'z': [1, 2.0, 1e+20, True, None], 'a': 'it\\'s \"q\" \u00e9\\n'} "
            "{\"z\": [1, 2.0, 1e+20, true, null], \"a\": \"it's \\\"q\\\" \u00e9\\n\"} "
            "{\n  \"a\": \"it's \\\"q\\\" \u00e9\\n\",\n  \"z\": [\n    1,\n    2.0,\n    1e+20,\n    true,\n    "
            "null\n  ]\n} 56");
}

TEST(ChatTemplate, TheDateIsTheRequests) {
  setenv("TZ", "UTC", 1);
  tzset();
  const auto chat = opened({{"chat_template", "{{ strftime_now('%d %b %Y') }}"}});
  EXPECT_EQ(chat.render(one_message("x", {{"now", 1700000000}}).dump()), "14 Nov 2023");
}

TEST(ChatTemplate, ARefusalHasTheTemplatesOwnWords) {
  const auto chat =
      opened({{"chat_template", "{% for m in messages %}{{ raise_exception('Only ' + m.role + '!') }}{% endfor %}"}});
  EXPECT_THAT(refusal(chat, one_message("x")), testing::EndsWith("conversation: Only user!"));
  const auto broken = opened({{"chat_template", "{{ messages[0].a.b.c }}"}});
  EXPECT_THAT(refusal(broken, one_message("x")), HasSubstr("default:1"));
  EXPECT_THAT(refusal(broken, {{"messages", json::array({1})}}), HasSubstr("not a JSON object"));
}

TEST(ChatTemplate, ATemplateThatIsNotJinjaIsNamed) {
  test::TempFolder folder;
  write(folder.path() / "chat_template.jinja", "{% for m in %}");
  try {
    ChatTemplate::find(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::Model);
    EXPECT_THAT(error.what(), HasSubstr("default"));
  }
}

TEST(ChatTemplate, AnEndlessTemplateEnds) {
  const auto chat = opened(
      {{"chat_template",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% if a == b %}{% endif %}{% endfor %}{% endfor %}"}});
  EXPECT_THAT(refusal(chat, one_message("x")), HasSubstr("fuel"));
}

TEST(ChatTemplate, TheLastMessageIsContinuedWithoutItsEnd) {
  const auto chat =
      opened({{"chat_template", "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}"}});
  json conversation = {
      {"messages", json::array({{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "Sure: "}}})},
      {"continue_final_message", true}};
  EXPECT_EQ(chat.render(conversation.dump()), "<user>a</>\n<assistant>Sure:");
  conversation["messages"][1]["content"] = nullptr;
  EXPECT_THAT(refusal(chat, conversation), HasSubstr("no text to continue"));
}

TEST(ChatTemplate, DeveloperIsSystemWhereTheTemplateDoesNotKnowTheRole) {
  const json conversation = {{"messages", json::array({{{"role", "developer"}, {"content", "a"}}})},
                             {"developer_is_system", true}};
  EXPECT_EQ(opened({{"chat_template", "{{ messages[0].role }}"}}).render(conversation.dump()), "system");
  EXPECT_EQ(
      opened({{"chat_template", "{% if messages[0].role == 'developer' %}d{% endif %}"}}).render(conversation.dump()),
      "d");
}

TEST(ChatTemplate, OneHandleServesManyThreads) {
  const auto chat = opened({{"chat_template", "{% for m in messages %}{{ m.content }};{% endfor %}"}});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        right += chat.render(one_message(std::to_string(t * 1000 + i)).dump()) == std::to_string(t * 1000 + i) + ";";
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

}  // namespace
}  // namespace pm
