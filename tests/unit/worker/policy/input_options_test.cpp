// SPDX-License-Identifier: Apache-2.0
// Options of inputs and heads that relatives of BERT have, one at a time, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string bert_with(const std::string& stack) { return "extends: bert\nstacks: {encoder: {" + stack + "}}\n"; }
std::string gpt2_with(const std::string& stack) { return "extends: gpt2\nstacks: {decoder: {" + stack + "}}\n"; }

TEST(InputOptions, TablesLookUpColumnsAndTheirDifferences) {
  Synthetic bert = tiny_bert();
  bert.add("bert.embeddings.x.weight", {9, 20});
  const std::string types = ", {from: token_type_embeddings, input: token_type_ids, rows: 2, skip_if_absent: true}]}";
  const Resolved resolved(bert, bert_with("input: {tables: [{from: x, input: box, column: 0, rows: 9}, {from: x, "
                                          "input: box, column: 2, minus_column: 0, rows: 9}" +
                                          types));
  const std::vector<IndexTable>& tables = resolved.model.stacks[0].input.tables;
  ASSERT_EQ(tables.size(), 3);
  EXPECT_EQ(tables[0].key(), "box.0");
  EXPECT_EQ(tables[1].key(), "box.2-0");
  EXPECT_EQ(tables[1].table.shares, tables[0].table.path);
  EXPECT_EQ(tables[2].key(), "token_type_ids");
  EXPECT_TRUE(tables[2].skip_if_absent && !tables[0].skip_if_absent);
  EXPECT_THAT(refusal(bert, Reason::UnsupportedPolicy,
                      bert_with("input: {tables: [{from: x, input: box, minus_column: 0, rows: 9}" + types)),
              HasSubstr("\"minus_column\" needs \"column\""));
  EXPECT_THAT(refusal(bert, Reason::UnsupportedPolicy,
                      bert_with("input: {tables: [{from: x, input: box, column: -1, rows: 9}" + types)),
              HasSubstr("column is -1, expected 0 to 63"));
}

TEST(InputOptions, StepsOfGenerationMayReadARowOfTheirOwn) {
  const auto with = [](const std::string& more) {
    return bert_with("input: {tables: [{from: token_type_embeddings, input: token_type_ids, rows: 2" + more + "}]}");
  };
  EXPECT_FALSE(Resolved(tiny_bert()).model.stacks[0].input.tables[0].generation_row);
  const Resolved resolved(tiny_bert(), with(", generation_row: '1 * 1'"));
  EXPECT_EQ(resolved.model.stacks[0].input.tables[0].generation_row, 1);
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable, with(", generation_row: 2")),
              HasSubstr("generation_row is 2, the table has 2"));
}

TEST(InputOptions, AClassMayGenerateBesideItsTask) {
  const auto with = [](const std::string& recompute) {
    return "extends: bert\narchitectures: {BertForMaskedLM: {recompute: " + recompute + "}}\n";
  };
  Synthetic bert = tiny_bert();
  bert.config["mask_token_id"] = 4;
  const Resolved plain(tiny_bert(), with("{}"));
  ASSERT_TRUE(plain.model.recompute);
  EXPECT_EQ(plain.model.recompute->append, -1);
  EXPECT_TRUE(plain.model.generates());
  EXPECT_FALSE(Resolved(tiny_bert()).model.generates());
  EXPECT_TRUE(Resolved(bert, with("{when: mask_token_id == 4}")).model.generates());
  EXPECT_FALSE(Resolved(bert, with("{when: mask_token_id != 4}")).model.generates());
  EXPECT_EQ(Resolved(bert, with("{append: mask_token_id}")).model.recompute->append, 4);
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, with("{append: 1000000}")),
              HasSubstr("the token that each step appends is 1000000"));
}

TEST(InputOptions, PositionsMayRestartInEachCell) {
  EXPECT_FALSE(Resolved(tiny_bert()).model.stacks[0].input.position_reset_per_cell);
  EXPECT_TRUE(Resolved(tiny_bert(), bert_with("input: {position: {reset_per_cell: true}}"))
                  .model.stacks[0]
                  .input.position_reset_per_cell);
}

TEST(InputOptions, RotaryMayRotateValues) {
  const auto rotary = [](const std::string& more) {
    return *Resolved(tiny_gpt2(), gpt2_with("attn: {rotary: {style: neox" + more + "}}"))
                .model.stacks[0]
                .layers[0]
                .attention.rotary;
  };
  EXPECT_FALSE(rotary("").values);
  EXPECT_TRUE(rotary(", values: n_head == 5").values);
}

TEST(HeadOptions, ClassesMayBeOneVector) {
  for (const bool flat : {true, false}) {  // ELECTRA stores [1, hidden], TAPAS [hidden]
    Synthetic gpt2 = tiny_gpt2();
    gpt2.config["architectures"] = {"GPT2ForSequenceClassification"};
    gpt2.add("score.weight", flat ? std::vector<int64_t>{20} : std::vector<int64_t>{1, 20});
    gpt2.add("score.bias", flat ? std::vector<int64_t>{} : std::vector<int64_t>{1});
    const Resolved resolved(gpt2,
                            "extends: gpt2\nheads: {score: {classes: {from: score, bias: true, vector: true}}}\n");
    const Head& head = resolved.model.heads[0];
    const auto& classes = std::get<ClassesSpec>(head.kind);
    EXPECT_TRUE(classes.vector);
    EXPECT_EQ(head.scores(), 1);
    EXPECT_THAT(classes.linear->weight.shape, ElementsAre(20));
    EXPECT_THAT(classes.linear->bias->shape, IsEmpty());
  }
}

TEST(HeadOptions, AHeadMayBeAbsentAndAMeanIsOfTwo) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.linear("a", 3, 20, false);
  gpt2.linear("b", 3, 20, false);
  const std::string heads =
      "extends: gpt2\nheads: {a: {pool: last, classes: {from: a, bias: false}}, b: {pool: second, classes: {from: b, "
      "bias: false}}, c: {when: n_head == 4, mean: [a, b]}, ";
  const std::string classes = "}\narchitectures: {GPT2LMHeadModel: {task: classify, heads: [a, b, c, d]}}\n";
  const Resolved resolved(gpt2, heads + "d: {mean: [a, b]}" + classes);
  ASSERT_EQ(resolved.model.heads.size(), 3);
  EXPECT_EQ(resolved.model.heads[1].pool(), Pool::Second);
  EXPECT_THAT(std::get<MeanSpec>(resolved.model.heads[2].kind).of, ElementsAre("a", "b"));
  EXPECT_THAT(refusal(gpt2, Reason::UnsupportedPolicy, heads + "d: {mean: [a]}" + classes),
              HasSubstr("\"mean\" has to list two heads"));
}

TEST(HeadOptions, PairsAndSpansReadEveryState) {
  const std::string classes = "}}\narchitectures: {GPT2LMHeadModel: {task: forward, heads: [c]}}\n";
  for (const std::string kind : {"pairs: {query: q, key: k, positions: p}", "spans: {start: s}"})
    EXPECT_THAT(
        refusal(tiny_gpt2(), Reason::UnknownArchitecture, "extends: gpt2\nheads: {c: {pool: first, " + kind + classes),
        HasSubstr("GPT2LMHeadModel (gpt2) has pairs or spans of pooled states, which this version does not run"));
}

TEST(HeadOptions, CellsHaveOneScorePerToken) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("cell", {20});
  gpt2.add("matrix", {1, 20});
  for (const std::string classes :
       {"classes: {from: =matrix, bias: false}", "pool: first, classes: {from: =cell, bias: false, vector: true}",
        "classes: {from: =cell, bias: false, vector: true, when: false}", "dense: {from: =matrix, bias: false}"})
    EXPECT_THAT(refusal(gpt2, Reason::UnknownArchitecture,
                        "extends: gpt2\nheads: {c: {" + classes +
                            ", cells: {columns: {from: =cell, bias: false}}}}\narchitectures: {GPT2LMHeadModel: {task: "
                            "forward, heads: [c]}}\n"),
                HasSubstr("GPT2LMHeadModel (gpt2) has cells without one score per token"));
}

TEST(HeadOptions, AHeadWithoutScoresGivesItsStates) {
  const Resolved resolved(
      tiny_gpt2(),
      "extends: gpt2\nheads: {c: {pool: last, act: tanh}}\narchitectures: {GPT2LMHeadModel: {task: forward, heads: "
      "[c]}}\n");
  const Head& head = resolved.model.heads[0];
  const auto& classes = std::get<ClassesSpec>(head.kind);
  EXPECT_FALSE(classes.linear.has_value());
  EXPECT_EQ(classes.transform.activation, Activation::Tanh);
  EXPECT_EQ(head.pool(), Pool::Last);
  EXPECT_EQ(head.scores(), 0);
}

TEST(HeadOptions, CellsHaveAColumnScoreATemperatureAndASize) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("cell", {20});
  gpt2.add("cell_bias", {});
  gpt2.add("col", {20});
  gpt2.add("col_bias", {});
  const auto with = [](const std::string& more) {
    return "extends: gpt2\nheads: {c: {classes: {from: =cell, bias: =cell_bias, vector: true}, cells: {columns: {from: "
           "=col, bias: =col_bias}" +
           more + "}}}\narchitectures: {GPT2LMHeadModel: {task: forward, heads: [c]}}\n";
  };
  const Resolved resolved(gpt2, with(", temperature: 0.5, max_rows: n_head, max_columns: 3, allow_empty_column: true"));
  const auto& cells = std::get<CellsSpec>(resolved.model.heads[0].kind);
  EXPECT_DOUBLE_EQ(cells.temperature, 0.5);
  EXPECT_EQ(cells.rows, 5);
  EXPECT_EQ(cells.across, 3);
  EXPECT_TRUE(cells.empty);
  EXPECT_EQ(cells.tokens.weight.tensor->name, "cell");
  EXPECT_EQ(cells.columns.weight.tensor->name, "col");
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, with(", temperature: 0")), HasSubstr("expected a number above 0"));
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, with(", max_rows: 0")), HasSubstr("rows = 0, expected 1 to 4096"));
}

}  // namespace
}  // namespace pm::policy
