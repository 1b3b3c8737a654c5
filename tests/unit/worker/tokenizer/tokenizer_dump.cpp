// SPDX-License-Identifier: Apache-2.0
// Test tool of the parity tests: tokenizer_dump FOLDER FILE, where FILE is {"texts": [...], "pairs": [[a, b], ...],
// "ids": [[...], ...], "mentions": [{"text": ..., "entity_spans": ..., "entities": ..., "max_tokens": ...}, ...]},
// prints ids, types, offsets and decoded texts of each, or why there is no tokenizer.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/tokenizer/entity_tokenizer.h"
#include "worker/tokenizer/tokenizer.h"

using nlohmann::json;

namespace {

json described(const std::vector<pm::Token>& tokens) {
  json ids = json::array(), types = json::array(), offsets = json::array(), sequences = json::array();
  for (const pm::Token& token : tokens) {
    ids.push_back(token.id);
    types.push_back(token.type);
    offsets.push_back({token.begin, token.end});
    sequences.push_back(token.sequence);
  }
  return {{"ids", ids}, {"types", types}, {"offsets", offsets}, {"sequences", sequences}};
}

std::string streamed(const pm::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  pm::Detokenizer stream(tokenizer);
  std::string text;
  for (int32_t id : ids) text += stream.push(id);
  return text + stream.flush();
}

json mentioned(const pm::EntityTokenizer& tokenizer, const json& given) try {
  const auto spans = given["entity_spans"].get<std::vector<pm::CharacterSpan>>();
  const auto titles = given.value("entities", std::vector<std::string>());
  const pm::EntityEncoding found =
      tokenizer.encode(given["text"].get<std::string>(), spans, given.contains("entities") ? &titles : nullptr,
                       given.contains("max_tokens") ? std::optional(given["max_tokens"].get<size_t>()) : std::nullopt);
  return {{"input_ids", found.ids}, {"entity_ids", found.entities}, {"mentions", found.mentions},
          {"starts", found.starts}, {"ends", found.ends},           {"has_places", found.has_places}};
} catch (const pm::Error& error) {
  return {{"refused", error.what()}};
}

json role(const std::optional<int32_t>& id) { return id ? json(*id) : json(); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    std::string why;
    const auto tokenizer = pm::Tokenizer::find(argv[1], &why);
    if (!tokenizer) {
      std::cout << json{{"ids_only", why}} << "\n";
      return 0;
    }
    const json input = json::parse(std::ifstream(argv[2]));
    const pm::SpecialIds& ids = tokenizer->special();
    json out{{"size", tokenizer->vocab_size()},
             {"texts", json::array()},
             {"pairs", json::array()},
             {"special",
              {{"bos", role(ids.bos)},
               {"eos", role(ids.eos)},
               {"unk", role(ids.unk)},
               {"sep", role(ids.sep)},
               {"pad", role(ids.pad)},
               {"cls", role(ids.cls)},
               {"mask", role(ids.mask)}}}};
    for (const std::string& text : input["texts"].get<std::vector<std::string>>()) {
      json one = described(tokenizer->encode_with_offsets(text));
      const auto encoded = tokenizer->encode(text);
      one["plain"] = tokenizer->encode(text, false);
      one["same"] = one["ids"] == json(encoded);
      one["decoded"] = tokenizer->decode(encoded);
      one["decoded_all"] = tokenizer->decode(encoded, false);
      one["streamed"] = streamed(*tokenizer, encoded);
      out["texts"].push_back(one);
    }
    for (const auto& given : input.value("ids", std::vector<std::vector<int32_t>>{}))
      out["ids"].push_back({{"decoded", tokenizer->decode(given)}, {"streamed", streamed(*tokenizer, given)}});
    for (const json& pair : input["pairs"])
      out["pairs"].push_back(described(tokenizer->encode_pair(pair[0].get<std::string>(), pair[1].get<std::string>())));
    if (input.contains("mentions")) {
      const pm::EntityTokenizer entities(argv[1], *tokenizer);
      for (const json& given : input["mentions"]) out["mentions"].push_back(mentioned(entities, given));
    }
    std::cout << out << "\n";
  } catch (const pm::Error& error) {
    std::cout << json{{"refused", error.what()}} << "\n";
  }
}
