// SPDX-License-Identifier: Apache-2.0
// Policy files that are wrong are refused with file, line and what is allowed; `extends` and `like` merge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/support/repository.h"
#include "worker/base/error.h"
#include "worker/policy/document.h"
#include "worker/policy/families.h"

namespace pm::policy {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_policy(text, "mine.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::UnsupportedPolicy);
    EXPECT_EQ(error.kind, ErrorKind::Model);
    return error.what();
  }
  return "accepted";
}

const std::string head = "model_type: x\nkind: decoder\narchitectures: {X: {task: embed}}\n";

struct Wrong {
  const char *name, *text, *message;
};
class WrongPolicy : public testing::TestWithParam<Wrong> {};
TEST_P(WrongPolicy, IsRefusedWithFileAndLine) {
  EXPECT_THAT(refusal(head + GetParam().text), testing::AllOf(HasSubstr("mine.yaml:"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongPolicy,
    testing::ValuesIn(std::vector<Wrong>{
        {"UnknownTopKey", "stack: {}\n",
         "mine.yaml:4: unknown key \"stack\" in the policy; allowed are model_type, extends"},
        {"UnknownStackKey", "stacks:\n  d:\n    inputs: {}\n",
         "mine.yaml:6: unknown key \"inputs\" in d; allowed are like"},
        {"UnknownParameterKey", "stacks:\n  d:\n    mlp: {up: {from: a, fused: concat}}\n",
         "mine.yaml:6: unknown key \"fused\" in up"},
        {"ShardingIsNoOption", "stacks:\n  d:\n    mlp: {up: {from: a, cut: column}}\n",
         "unknown key \"cut\" in up; allowed are from, tie, when, optional, first_match, bias, layout, keep_in_fp32"},
        {"BadExpression", "let: {a: 1 +}\nstacks: {d: {}}\n", "mine.yaml:4: the expression ends too early"},
        {"BadTemplate", "stacks: {d: {input: {token: 'a{b'}}}\n", "braces do not match"},
        {"ParameterWithoutName", "stacks: {d: {input: {token: {when: true}}}}\n", "neither \"from\" nor \"tie\""},
        {"ListForMap", "stacks: [1]\n", "\"stacks\" has to be a map"},
        {"EmptyList", "stacks: {d: {prefix: []}}\n", "empty list"},
        {"DuplicateKey", "stacks: {}\nstacks: {}\n", "mine.yaml:5: the key \"stacks\" stands twice"},
        {"NotYaml", "stacks: {\n", "not YAML"},
        {"NoStacks", "", "no \"stacks\""},
        {"UnknownHead", "stacks: {d: {}}\nheads: {lm: {stack: e}}\n", "\"e\" is not one of the policy's stacks"},
        {"LikeOfNothing", "stacks: {d: {like: e}}\n", "not a stack that stands above"},
        {"ExtendsNothing", "extends: nothing\nstacks: {d: {}}\n", "no built-in policy; there are"},
        {"UnknownKind", "kind: ring\nstacks: {d: {}}\n", "stands twice"},
        {"UnknownPoolingWord", "stacks: {d: {output: {pooler: {pool: 3 +}}}}\n", "ends too early"},
        {"APoolerHasNoStoredWordOfItsOwn", "stacks: {d: {output: {pooler: {from: a, fused: concat}}}}\n",
         "unknown key \"fused\" in pooler"},
        {"AlibiHasNoSlopes", "stacks: {d: {attn: {alibi: {slopes: 3}}}}\n",
         "unknown key \"slopes\" in alibi; allowed are when, scaled, bf16"},
        {"ABiasSectionHasNames", "stacks: {d: {mlp: {up: {from: a, bias: {optional: true}}}}}\n",
         "\"bias\" as a section needs \"from\""},
        {"AHeadIsOfOneKind", "stacks: {d: {}}\nheads: {h: {logits: a, classes: b}}\n",
         "mine.yaml:5: \"classes\" has no meaning in the head \"h\" of logits; allowed beside it are at, when, stack, "
         "output, pool, entities, streams, dense, act, norm, scale_input, softcap"},
        {"ClassesHaveNoSoftcap", "stacks: {d: {}}\nheads: {h: {classes: a, softcap: 3}}\n",
         "\"softcap\" has no meaning in the head \"h\" of classes"},
        {"CellsHaveNoLogits", "stacks: {d: {}}\nheads: {h: {cells: {columns: a}, logit_scale: b}}\n",
         "\"logit_scale\" has no meaning in the head \"h\" of cells"},
        {"SpansHaveNoClasses", "stacks: {d: {}}\nheads: {h: {spans: {start: a}, classes: b}}\n",
         "\"classes\" has no meaning in the head \"h\" of spans"},
        {"PairsHaveNoDense", "stacks: {d: {}}\nheads: {h: {pairs: {query: a}, dense: b}}\n",
         "\"dense\" has no meaning in the head \"h\" of pairs"},
        {"AMeanReadsNoState", "stacks: {d: {}}\nheads: {a: {}, b: {}, m: {mean: [a, b], pool: first}}\n",
         "\"pool\" has no meaning in the head \"m\" of mean; allowed beside it are at, when, stack, output"},
        {"ASimilarityReadsNoState", "stacks: {d: {}}\nheads: {a: {}, b: {}, s: {between: [a, b], act: tanh}}\n",
         "\"act\" has no meaning in the head \"s\" of between"},
        {"BetweenIsAPair", "stacks: {d: {}}\nheads: {s: {between: [s]}}\n", "has to list two heads"},
        {"BetweenNamesHeads", "stacks: {d: {}}\nheads: {s: {between: [s, t]}}\n",
         "\"t\" is not one of the policy's heads"},
        {"BadRefusal", "stacks: {d: {}}\nrefuse: {'a ==': no}\n", "ends too early"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(WrongPolicy, AnArchitectureNeedsKnownHeadsAndATask) {
  EXPECT_THAT(
      refusal("model_type: x\nkind: decoder\nstacks: {d: {}}\narchitectures:\n  X: {task: embed, heads: [lm]}\n"),
      HasSubstr("mine.yaml:5: \"lm\" is not one of the policy's heads"));
  EXPECT_THAT(refusal("model_type: x\nkind: decoder\nstacks: {d: {}}\narchitectures: {X: {}}\n"),
              HasSubstr("X has no task"));
}

TEST(WrongPolicy, KindsAndTasksAreWordsOfAList) {
  EXPECT_THAT(refusal("model_type: x\nkind: ring\nstacks: {d: {}}\narchitectures: {X: {task: embed}}\n"),
              HasSubstr("mine.yaml:2: \"kind\" is \"ring\"; there are encoder, decoder"));
  EXPECT_THAT(refusal("model_type: x\nkind: encoder\nstacks: {d: {}}\narchitectures:\n  X: {task: embedd}\n"),
              HasSubstr("mine.yaml:5: \"task\" is \"embedd\"; there are embed, generate"));
}

TEST(WrongPolicy, AnAliasIsOfAClassThatIsDescribed) {
  const std::string before = "model_type: x\nkind: encoder\nstacks: {d: {}}\narchitectures:\n  X: {task: embed}\n";
  EXPECT_EQ(refusal(before + "  Y: {alias_of: X}\n"), "accepted");
  EXPECT_THAT(refusal(before + "  Y: {alias_of: Z}\n"),
              HasSubstr("mine.yaml:6: \"Z\" is not one of the policy's architectures"));
  EXPECT_THAT(refusal(before + "  Y: {alias_of: X, task: embed}\n"), HasSubstr("stands alone"));
  EXPECT_THAT(refusal(before + "  Y: {alias_of: X}\n  Z: {alias_of: Y}\n"),
              HasSubstr("names a class that is described"));
}

TEST(WrongPolicy, OutputsAreRenamedForHeadsOfTheClassOnly) {
  EXPECT_THAT(refusal("model_type: x\nkind: encoder\nstacks: {d: {}}\nheads: {a: {}, b: {}}\narchitectures:\n  X: "
                      "{task: embed, heads: a, outputs: {b: y}}\n"),
              HasSubstr("mine.yaml:6: outputs: \"b\" is not one of the heads of X"));
}

TEST(WrongPolicy, SizeAndAnchorsAreBounded) {
  EXPECT_THAT(refusal(std::string(300 * 1024, '#')), HasSubstr("256 KiB"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 8; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += "*a" + std::to_string(i - 1) + (j < 9 ? ", " : "]\n");
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("20000 nodes"));
  EXPECT_THAT(refusal(std::string(400, '[')), HasSubstr("mine.yaml"));
}

TEST(Extends, LaysTheFileOverTheBuiltIn) {
  const Node policy = parse_policy(
      "extends: t5\nmodel_type: mt5\narchitectures: {MT5Model: {task: embed}, T5Model: ~}\nlet: {scale: 2}\n",
      "mt5.yaml");
  EXPECT_EQ(model_types(policy), std::vector<std::string>{"mt5"});
  EXPECT_NE(policy.get("architectures")->get("MT5Model"), nullptr);
  EXPECT_EQ(policy.get("architectures")->get("T5Model"), nullptr);
  EXPECT_EQ(policy.get("let")->get("scale")->text, "2");
  EXPECT_EQ(policy.get("let")->get("hidden")->text, "d_model ?? 512");
  EXPECT_EQ(policy.get("stacks")->get("decoder")->get("mlp")->get("at")->text, "layer.2.");
}

TEST(Families, ListTheClassesOfEveryFileOfPolicies) {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.push_back(family.name);
    EXPECT_FALSE(family.classes.empty());
    for (const FamilyClass& one : family.classes) EXPECT_NE(one.task.has_value(), !one.refusal.empty()) << one.name;
  }
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(test::repository() / "policies"))
    if (file.path().extension() == ".yaml") files.push_back(file.path().stem());
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(files));
}

TEST(Builtin, AnUnknownModelTypeListsTheKnownOnes) {
  try {
    builtin_policy("resnet");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::UnknownArchitecture);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("\"resnet\""), HasSubstr("gpt2"), HasSubstr("clip_text_model")));
  }
}

}  // namespace
}  // namespace pm::policy
