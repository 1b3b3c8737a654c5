// SPDX-License-Identifier: Apache-2.0
// Entities behind the tokens of a text, queries of theirs, and heads that read them, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* section =
    "input: x, mask: m, mentions: p, table: ents, rows: 9, width: 6, positions: places, "
    "position_rows: 12, norm: norm, projection: {from: dense, bias: false}";
constexpr const char* queries =
    "attn: {entity_queries: {word_to_entity: self.we, entity_to_word: self.ew, "
    "entity_to_entity: self.ee}}";

std::string bert_with(const std::string& entities, const std::string& more = "", const std::string& heads = "") {
  return "extends: bert\nstacks: {encoder: {input: {entities: {at: entities., " + entities + "}}" + more + "}}\n" +
         heads;
}

Synthetic bert_with_entities() {
  Synthetic bert = tiny_bert();
  bert.add("bert.entities.ents.weight", {9, 6});
  bert.add("bert.entities.places.weight", {12, 20});
  bert.linear("bert.entities.dense", 20, 6, /*bias=*/false);
  bert.norm("bert.entities.norm", 20);
  for (int l = 0; l < 2; ++l) {
    for (const char* name : {"we", "ew", "ee"})
      bert.linear("bert.encoder.layer." + std::to_string(l) + ".attention.self." + name, 20, 20);
  }
  return bert;
}

TEST(Entities, HaveTablesThatRanksShare) {
  const Resolved resolved(bert_with_entities(), bert_with(section, std::string(", ") + queries));
  EXPECT_EQ(resolved.param("encoder.entities.table").role, Role::TokenEmbedding);
  EXPECT_EQ(resolved.param("encoder.entities.table").units, 9);
  EXPECT_EQ(resolved.param("encoder.entities.positions").role, Role::PositionEmbedding);
  EXPECT_THAT(resolved.param("encoder.entities.projection.weight").shape, ElementsAre(20, 6));
  const Param& query = resolved.param("encoder.layers.1.attn.entity_queries.entity_to_word.weight");
  EXPECT_EQ(query.role, Role::QueryWeight);
  EXPECT_EQ(query.units, 5);
}

TEST(Entities, NeedAllTheirPartsAndAProjectionToStates) {
  EXPECT_THAT(refusal(bert_with_entities(), Reason::UnsupportedPolicy, bert_with("input: x, mask: m")),
              HasSubstr("entities need \"mentions\""));
  std::string narrow = section;
  narrow.resize(narrow.find(", projection"));
  EXPECT_THAT(refusal(bert_with_entities(), Reason::ModelUnreadable, bert_with(narrow, std::string(", ") + queries)),
              HasSubstr("expected a projection"));
  EXPECT_THAT(refusal(bert_with_entities(), Reason::UnsupportedPolicy,
                      bert_with(section, ", attn: {entity_queries: {word_to_entity: self.we}}")),
              HasSubstr("entity_queries need \"entity_to_word\""));
}

TEST(Heads, ReadStatesOfEntities) {
  Synthetic bert = bert_with_entities();
  bert.config["architectures"] = {"BertForSequenceClassification"};
  std::erase_if(bert.tensors, [](const auto& tensor) { return tensor.first.starts_with("cls."); });
  const auto with = [](const std::string& states) {
    return bert_with(section, std::string(", ") + queries, "heads: {seq: {pool: ~, entities: " + states + "}}\n");
  };
  for (const auto& [states, parts] : {std::pair{"first", 1}, {"pair", 2}, {"span", 3}}) {
    bert.linear("classifier", 3, 20 * parts);
    const Resolved resolved(bert, with(states));
    EXPECT_THAT(resolved.param("heads.seq.classes.weight").shape, ElementsAre(3, 20 * parts));
    EXPECT_EQ(resolved.model.heads[0].is_pooled(), parts < 3);
  }
  EXPECT_THAT(refusal(bert, Reason::UnsupportedPolicy,
                      bert_with(section, std::string(", ") + queries, "heads: {seq: {pool: first, entities: each}}\n")),
              HasSubstr("without \"pool\""));
}

}  // namespace
}  // namespace pm::policy
