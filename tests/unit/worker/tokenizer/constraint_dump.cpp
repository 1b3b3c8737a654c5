// SPDX-License-Identifier: Apache-2.0
// Test tool of the parity tests: reads a line of JSON for each schema, {"schema": its text, "texts", "samples",
// "seed"}, and prints one: {"refused": why}, or {"accepts": whether each text follows the constraint, "samples": random
// texts that the masks allow, null for one without an end}. Tokens are single bytes.
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/tokenizer/token_matcher.h"

using nlohmann::json;

namespace {

constexpr size_t longest_sample = 300, long_sample = 100;

pm::Tokenizer bytes() {
  const pm::test::TempFolder folder;
  pm::test::write_tokenizer(folder.path(), pm::test::byte_level_json());
  return pm::Tokenizer::open(folder.path());
}

bool accepts(pm::TokenMatcher matcher, std::string_view text) {
  try {
    for (size_t i = 0; i < text.size(); ++i)
      if (matcher.append(static_cast<uint8_t>(text[i]))) return i + 1 == text.size();
    return matcher.mask().may_end;
  } catch (const pm::Error&) {
    return false;  // a byte that is not allowed
  }
}

/// Draws one of the bytes that may come next: some of any, some of those that the schema has, some that close.
std::optional<uint8_t> draw(const pm::TokenMatcher::Mask& mask, const std::string& schema, bool close,
                            std::mt19937& random) {
  const auto allowed = [&](auto&& wanted) {
    std::vector<uint8_t> found;
    for (size_t id = 0; id < 256; ++id)
      if (mask.words[id / 32] >> (id % 32) & 1 && wanted(static_cast<char>(id))) found.push_back(id);
    return found;
  };
  const uint32_t way = close ? 0 : random() % 3;
  const auto within = [](const std::string& text) { return [&text](char c) { return text.find(c) != text.npos; }; };
  static const std::string closing = "\"]}", escaping = "\\u0";
  std::vector<uint8_t> found;
  if (way == 0) found = allowed(within(closing));
  if (way == 1) found = allowed([&](char c) { return within(schema)(c) || within(escaping)(c); });
  if (found.empty()) found = allowed([](char) { return true; });
  if (found.empty()) return std::nullopt;
  return found[random() % found.size()];
}

/// Returns a random text; it ends where nothing may follow, or in half of the places where it may.
json sample(pm::TokenMatcher matcher, const std::string& schema, std::mt19937& random) {
  std::string text;
  while (text.size() < longest_sample) {
    const pm::TokenMatcher::Mask mask = matcher.mask();
    if (mask.may_end && random() % 2 == 0) return text;
    const std::optional<uint8_t> byte = draw(mask, schema, text.size() > long_sample, random);
    if (!byte) return mask.may_end ? json(text) : json();
    text += static_cast<char>(*byte);
    if (matcher.append(*byte)) return text;
  }
  return nullptr;
}

json answer(const pm::Tokenizer& tokenizer, const json& job) {
  const std::string schema = job.at("schema");
  try {
    const pm::TokenMatcher matcher =
        pm::TokenMatcher::compile(tokenizer, pm::ConstraintKind::JsonSchema, schema, false);
    json made = {{"accepts", json::array()}, {"samples", json::array()}};
    for (const json& text : job.value("texts", json::array()))
      made["accepts"].push_back(accepts(matcher.fork(), text.get_ref<const std::string&>()));
    std::mt19937 random(job.value("seed", 0U));
    for (int i = job.value("samples", 0); i > 0; --i) made["samples"].push_back(sample(matcher.fork(), schema, random));
    return made;
  } catch (const pm::Error& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace

int main() {
  const pm::Tokenizer tokenizer = bytes();
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(tokenizer, json::parse(line)) << "\n";
}
