// SPDX-License-Identifier: Apache-2.0
// Lists the items of a response's input in OpenAI's form, and their pages.
#include "worker/server/wire/listed_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsEmpty;

json listed(const char* input) {
  ordered_json items = ordered_json::array();
  append_listed_items(items, ordered_json::parse(input));
  assign_item_ids(items, "resp_1");
  return items;
}

TEST(ListedItems, ATextIsTheMessageOfAUser) {
  EXPECT_EQ(listed(R"("Hi")"), json::parse(R"([{"id": "msg_resp_1_in0", "type": "message", "status": "completed",
    "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}])"));
}

TEST(ListedItems, ContentsOfMessagesArePartsOfTheirRole) {
  const json items = listed(R"([
    {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}], "x": 1},
    {"role": "assistant", "content": "c", "phase": "commentary", "status": "incomplete"},
    {"role": "assistant", "status": "odd", "content": [
      {"type": "output_text", "text": "d", "annotations": null, "logprobs": [{"token": "d"}]},
      {"type": "refusal", "refusal": "no"}]}])");
  EXPECT_EQ(items, json::parse(R"([
    {"id": "msg_resp_1_in0", "type": "message", "status": "completed", "role": "developer",
     "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"id": "msg_resp_1_in1", "type": "message", "status": "incomplete", "role": "assistant", "phase": "commentary",
     "content": [{"type": "output_text", "text": "c", "annotations": [], "logprobs": []}]},
    {"id": "msg_resp_1_in2", "type": "message", "status": "completed", "role": "assistant", "content": [
      {"type": "output_text", "text": "d", "annotations": [], "logprobs": [{"token": "d"}]},
      {"type": "refusal", "refusal": "no"}]}])"));
}

TEST(ListedItems, CallsResultsAndReasoningKeepTheirFields) {
  const json items = listed(R"([
    {"type": "reasoning", "content": null, "encrypted_content": "e"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]}])");
  EXPECT_EQ(items, json::parse(R"([
    {"id": "rs_resp_1_in0", "type": "reasoning", "status": "completed", "summary": [], "encrypted_content": "e"},
    {"id": "fc_resp_1_in1", "type": "function_call", "status": "completed", "call_id": "c1", "name": "f",
     "arguments": "{}"},
    {"id": "fco_resp_1_in2", "type": "function_call_output", "status": "completed", "call_id": "c1",
     "output": [{"type": "input_text", "text": "r"}]}])"));
}

TEST(ListedItems, EachIdIsThatOfOneItem) {
  const json items =
      listed(R"([{"role": "user", "content": "a", "id": "m"}, {"role": "user", "content": "b", "id": "m"},
                                {"role": "user", "content": "c", "id": ""}])");
  EXPECT_EQ(items[0]["id"], "m");
  EXPECT_EQ(items[1]["id"], "msg_resp_1_in1");
  EXPECT_EQ(items[2]["id"], "msg_resp_1_in2");
}

/// Returns the page of 25 items with the ids 0 to 24.
ordered_json page(const std::string& query) {
  ordered_json items = ordered_json::array();
  for (int i = 0; i < 25; ++i) items.push_back({{"id", std::to_string(i)}});
  UnknownFields unknown(true);
  return item_page(items, query, unknown);
}

std::vector<std::string> ids(const ordered_json& page) {
  std::vector<std::string> all;
  for (const ordered_json& item : page["data"]) all.push_back(item["id"]);
  return all;
}

TEST(ListedItems, APageHasTwentyItemsFromTheLastOn) {
  const ordered_json first = page("");
  EXPECT_EQ(first["data"].size(), 20u);
  EXPECT_EQ(first["first_id"], "24");
  EXPECT_EQ(first["last_id"], "5");
  EXPECT_EQ(first["has_more"], true);
  const ordered_json last = page("after=5&order=desc&include=a&include=b");
  EXPECT_THAT(ids(last), ElementsAre("4", "3", "2", "1", "0"));
  EXPECT_EQ(last["has_more"], false);
}

TEST(ListedItems, PagesHaveALimitAndAnOrder) {
  EXPECT_THAT(ids(page("limit=2&order=asc")), ElementsAre("0", "1"));
  EXPECT_THAT(ids(page("limit=2&order=asc&after=1")), ElementsAre("2", "3"));
  EXPECT_EQ(page("limit=5&after=5")["has_more"], false) << "it ends with the last item";
  EXPECT_EQ(page("limit=100")["data"].size(), 25u);
  const ordered_json end = page("after=0");
  EXPECT_THAT(ids(end), IsEmpty());
  EXPECT_EQ(end["first_id"], nullptr);
  EXPECT_EQ(end["last_id"], nullptr);
  EXPECT_EQ(end["has_more"], false);
}

TEST(ListedItems, WhatIsNoPageIsRefused) {
  for (const char* query : {"limit=0", "limit=101", "limit=1.5", "limit=99999999999999999999", "order=up", "after=25",
                            "after=", "before=3"}) {
    const std::string text = query;
    try {
      page(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      EXPECT_EQ(error.param, text.substr(0, text.find('='))) << error.what();
    }
  }
}

}  // namespace
}  // namespace pm::server
