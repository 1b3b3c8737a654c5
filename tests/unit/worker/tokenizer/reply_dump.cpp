// SPDX-License-Identifier: Apache-2.0
// Test tool of the parity tests: reply_dump FILE, where FILE is a list of {"template" or "form", "prompt", "text",
// "tools", "calls"}, prints for each the message, or why the template is refused. The text is also read a byte at a
// time and cut in two at every byte (a long one at some); a message that differs is printed as {"differs"}. U+001E
// stands around special tokens.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/tokenizer/reply_form.h"

using Json = nlohmann::ordered_json;

namespace {

pm::ReplyForm open(const Json& one, const std::filesystem::path& folder) {
  std::filesystem::remove(folder / "tokenizer_config.json");
  if (one.contains("template"))
    std::ofstream(folder / "tokenizer_config.json") << Json{{"response_template", one["template"]}};
  std::string problem;
  const auto form = pm::ReplyForm::find(folder, one.value("form", ""), &problem);
  if (!form) throw std::runtime_error(problem);
  return *form;
}

void add(Json& message, const std::vector<pm::ReplyEvent>& events) {
  using Kind = pm::ReplyEvent::Kind;
  for (const pm::ReplyEvent& event : events) {
    if (event.kind == Kind::Content) message["content"].get_ref<std::string&>() += event.text;
    if (event.kind == Kind::Reasoning) message["reasoning"].get_ref<std::string&>() += event.text;
    if (event.kind == Kind::Call) message["calls"].push_back({{"name", event.text}, {"arguments", ""}});
    if (event.kind == Kind::Arguments)
      message["calls"].at(event.call)["arguments"].get_ref<std::string&>() += event.text;
  }
}

Json parse(const pm::ReplyForm& form, const Json& one, const std::vector<std::string_view>& pieces) {
  Json message = {{"content", ""}, {"reasoning", ""}, {"calls", Json::array()}};
  auto parser =
      form.begin(one.value("prompt", ""), one.contains("tools") ? one["tools"].dump() : "", one.value("calls", true));
  for (const std::string_view piece : pieces) add(message, parser.feed(piece));
  add(message, parser.finish());
  return message;
}

Json parse_all(const pm::ReplyForm& form, const Json& one) {
  std::string text = one.at("text");
  std::replace(text.begin(), text.end(), '\x1e', pm::ReplyParser::special_mark);
  const std::string_view all = text;
  const Json whole = parse(form, one, {all});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < all.size(); ++i) bytes.push_back(all.substr(i, 1));
  if (const Json other = parse(form, one, bytes); other != whole) return {{"differs", {whole, other}}};
  const size_t step = all.size() < 1000 ? 1 : 97;
  for (size_t i = 0; i <= all.size(); i += step)
    if (const Json other = parse(form, one, {all.substr(0, i), all.substr(i)}); other != whole)
      return {{"differs", {whole, other}}, {"at", i}};
  return whole;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path file = argv[1], folder = file.parent_path() / "reply_dump";
  std::filesystem::create_directories(folder);
  Json out = Json::array();
  for (const Json& one : Json::parse(std::ifstream(file))) {
    try {
      out.push_back(parse_all(open(one, folder), one));
    } catch (const std::exception& error) {
      out.push_back({{"refused", error.what()}});
    }
  }
  std::cout << out << "\n";
}
