// SPDX-License-Identifier: Apache-2.0
// The memories of requests: what is read, what is refused, and what is left for the request after.
#include "worker/models/requests/request_memory.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"
#include "worker/models/joined.h"

namespace pm::test {
namespace {

using models::make_inputs;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t length = 3;

policy::Model remembering() {
  policy::Model made = model();
  made.stacks[0].layers.resize(2);
  made.stacks[0].memory = policy::Memory{.length = length, .input = "mems"};
  return made;
}

/// Two rows of two columns, the second with one token, and memories [2, length, 8] that count from `first` on.
Arrays request(std::optional<float> first = std::nullopt) {
  Arrays arrays{{"input_ids", {{2, 2}, std::vector<int64_t>{1, 2, 3, 4}}},
                {"attention_mask", {{2, 2}, std::vector<int64_t>{1, 1, 1, 0}}}};
  for (int layer = 0; first && layer < 2; ++layer) {
    std::vector<float> numbers(length * 2 * 8);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = *first + static_cast<float>(i);
    arrays["mems." + std::to_string(layer)] = {{2, length, 8}, numbers};
  }
  return arrays;
}

std::string refusal(const Arrays& arrays) {
  try {
    make_inputs(remembering(), arrays);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "read";
}

at::Tensor first_column(const at::Tensor& states) { return states.select(-1, 0).contiguous(); }

std::vector<float> values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel()};
}

TEST(Memory, OfOneRowLiesBehindThatOfAnother) {
  const models::Inputs inputs = make_inputs(remembering(), request(0.f));
  const std::vector<at::Tensor>& memory = inputs.stack_inputs.at("encoder").batch.memory;
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_THAT(values(first_column(memory[1])), ElementsAre(0, 8, 16, 24, 32, 40));
  EXPECT_TRUE(make_inputs(remembering(), request()).stack_inputs.at("encoder").batch.memory.empty());
}

TEST(Memory, OfTheWrongShapeOrOfSomeLayersIsRefused) {
  Arrays some = request(0.f);
  some.erase("mems.0");
  EXPECT_THAT(refusal(some), HasSubstr("memories without \"mems.0\"; give one for each of the 2 layers, or none"));
  Arrays shorter = request(0.f);
  shorter["mems.1"] = {{2, 1, 8}, std::vector<float>(16)};
  EXPECT_THAT(refusal(shorter), HasSubstr("mems.1 has the shape [2, 1, 8], expected [rows, memory, width], [2, 3, 8]"));
  Arrays whole = request(0.f);
  whole["mems.1"] = {{2, length, 8}, std::vector<int64_t>(48)};
  EXPECT_THAT(refusal(whole), HasSubstr("mems.1 has integers"));
  Arrays more = request(0.f);
  more["mems.2"] = more["mems.1"];
  EXPECT_THAT(refusal(more), HasSubstr("mems.2"));
}

TEST(Memory, OfRequestsThatHaveNoneIsZeroBesideThatOfOthers) {
  const policy::Model model = remembering();
  const models::Inputs with = make_inputs(model, request(1.f)), without = make_inputs(model, request());
  const models::StackInput &one = with.stack_inputs.at("encoder"), &other = without.stack_inputs.at("encoder");
  EXPECT_TRUE(models::joined({&other, &other}).memory.empty());
  const std::vector<float> given{1, 9, 17, 25, 33, 41}, none(6, 0.f);
  for (const bool first : {true, false}) {
    const layers::Batch batch = models::joined(first ? std::vector{&one, &other} : std::vector{&other, &one});
    std::vector<float> expected = first ? given : none;
    expected.insert(expected.end(), (first ? none : given).begin(), (first ? none : given).end());
    EXPECT_EQ(values(first_column(batch.memory.at(0))), expected);
  }
}

TEST(Memory, AfterARequestIsTheLastOfMemoryAndTokens) {
  const policy::Model model = remembering();
  const models::Inputs inputs = make_inputs(model, request(0.f));
  const models::StackInput& tokens = inputs.stack_inputs.at("encoder");
  const at::Tensor states = at::arange(100, 103, at::kFloat).unsqueeze(1).expand({3, 8});
  const policy::Memory& memory = *model.stacks[0].memory;
  const at::Tensor after = models::next_memory(memory, tokens, tokens.batch.memory[0], states);
  EXPECT_EQ(after.sizes(), at::IntArrayRef({2, length, 8}));
  EXPECT_THAT(values(first_column(after)), ElementsAre(16, 100, 101, 32, 40, 102));
  EXPECT_THAT(values(first_column(models::next_memory(memory, tokens, {}, states))),
              ElementsAre(0, 100, 101, 0, 0, 102));
}

}  // namespace
}  // namespace pm::test
