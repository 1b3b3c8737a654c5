// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/listed_items.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <vector>

#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A type of items: the beginning of its ids, and its fields beside id, type and status.
struct ItemType {
  const char* name;
  const char* prefix;
  std::vector<const char*> fields;
};

const ItemType& type_of(const ordered_json& item) {
  static const std::vector<ItemType> types{{"message", "msg_", {"role", "phase"}},
                                           {"reasoning", "rs_", {"summary", "content", "encrypted_content"}},
                                           {"function_call", "fc_", {"call_id", "name", "arguments", "namespace"}},
                                           {"function_call_output", "fco_", {"call_id", "name", "output", "namespace"}},
                                           {"custom_tool_call", "ctc_", {"call_id", "name", "input", "namespace"}},
                                           {"custom_tool_call_output", "ctco_", {"call_id", "output"}}};
  const auto type = item.find("type");
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const ItemType& one) { return type != item.end() && *type == one.name; });
  return found == types.end() ? types.front() : *found;  // an item without a type is a message
}

std::string text_of(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Returns the content of a message as parts. Requests may also have a text, and parts of the type "text".
ordered_json parts_of(const ordered_json& content, bool of_assistant) {
  ordered_json parts = ordered_json::array();
  const auto add = [&](const ordered_json& part) {
    if (text_of(part, "type") == "refusal") {
      parts.push_back({{"type", "refusal"}, {"refusal", part["refusal"]}});
      return;
    }
    if (text_of(part, "type") == "input_image") {
      parts.push_back({{"type", "input_image"},
                       {"image_url", part["image_url"]},
                       {"detail", part.contains("detail") ? part["detail"] : ordered_json("auto")}});
      return;
    }
    ordered_json made = {{"type", of_assistant ? "output_text" : "input_text"}, {"text", part["text"]}};
    if (of_assistant)
      for (const char* name : {"annotations", "logprobs"})
        made[name] = part.contains(name) && part[name].is_array() ? part[name] : ordered_json::array();
    parts.push_back(std::move(made));
  };
  if (content.is_string())
    add({{"text", content}});
  else
    for (const ordered_json& part : content) add(part);
  return parts;
}

ordered_json listed_item(const ordered_json& item) {
  static constexpr std::array statuses{"in_progress", "completed", "incomplete"};
  const ItemType& type = type_of(item);
  ordered_json made = ordered_json::object();
  if (const std::string id = text_of(item, "id"); !id.empty()) made["id"] = id;
  made["type"] = type.name;
  const std::string status = text_of(item, "status");
  const bool known = std::find(statuses.begin(), statuses.end(), status) != statuses.end();
  made["status"] = known ? status : "completed";
  for (const char* name : type.fields)
    if (const auto value = item.find(name); value != item.end() && !value->is_null()) made[name] = *value;
  if (made["type"] == "message") made["content"] = parts_of(item.at("content"), made.at("role") == "assistant");
  if (made["type"] == "reasoning" && !made.contains("summary")) made["summary"] = ordered_json::array();
  return made;
}

int64_t read_limit(Fields& fields) {
  const auto text = fields.text("limit");
  if (!text) return default_listed_items;
  int64_t limit = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, limit);
  if (error != std::errc() || rest != end || limit < 1 || limit > max_listed_items)
    throw bad_field("limit", json_excerpt(*text), "a whole number from 1 to " + std::to_string(max_listed_items));
  return limit;
}

}  // namespace

void append_listed_items(ordered_json& items, const ordered_json& input) {
  if (input.is_string()) return items.push_back(listed_item({{"role", "user"}, {"content", input}}));
  for (const ordered_json& item : input) items.push_back(listed_item(item));
}

void assign_item_ids(ordered_json& items, const std::string& response_id) {
  std::set<std::string> ids;
  for (size_t i = 0; i < items.size(); ++i) {
    ordered_json& item = items[i];
    if (const std::string id = text_of(item, "id"); !id.empty() && ids.insert(id).second) continue;
    const std::string made = type_of(item).prefix + response_id + "_in" + std::to_string(i);
    ids.insert(made);
    ordered_json named = {{"id", made}};  // the first key, as in other items
    named.update(item);
    named["id"] = made;
    item = std::move(named);
  }
}

ordered_json item_page(const ordered_json& items, std::string_view query, UnknownFields& unknown) {
  json parameters = json::object();
  for (const auto& [name, value] : parse_query(query)) parameters[name] = value;
  Fields fields(parameters);
  const auto limit = static_cast<size_t>(read_limit(fields));
  const std::string order = fields.text("order").value_or("desc");
  if (order != "asc" && order != "desc") throw bad_field("order", json_excerpt(order), R"("asc" or "desc")");
  const auto after = fields.text("after");
  for (const char* name : {"include", "include[]"}) fields.find(name);  // items are always whole
  unknown.take(fields);
  std::vector<const ordered_json*> all;
  for (const ordered_json& item : items) all.push_back(&item);
  if (order == "desc") std::reverse(all.begin(), all.end());
  auto first = all.begin();
  if (after) {
    first = std::find_if(all.begin(), all.end(), [&](const ordered_json* item) { return item->at("id") == *after; });
    if (first == all.end())
      throw bad_field("after", json_excerpt(*after), "the id of an item of this response's input");
    ++first;
  }
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(limit, static_cast<size_t>(all.end() - first)));
  ordered_json page = {{"object", "list"}, {"data", ordered_json::array()}};
  for (auto item = first; item != last; ++item) page["data"].push_back(**item);
  page["first_id"] = first == last ? ordered_json() : (*first)->at("id");
  page["last_id"] = first == last ? ordered_json() : (*(last - 1))->at("id");
  page["has_more"] = last != all.end();
  return page;
}

}  // namespace pm::server
