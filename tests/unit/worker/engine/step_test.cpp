// The step message survives the wire, and damaged bytes are refused.
#include <gtest/gtest.h>

#include "worker/engine/step.h"

namespace pm::engine {
namespace {

StepMessage example() {
  StepMessage message;
  message.step = 1'000'000'007;
  message.freed = {3, 4};
  message.copies = {5, 6, 7, 8};
  message.entries.push_back({7, true, 32, {5, 6}, {1, 2, 3}, {11, 12}, {4}, 2, Want::Scores});
  message.entries.push_back({});
  message.forward = ForwardJob{{{{"input_ids", {{2, 3}, std::vector<int64_t>(6)}}, {"pixel_values", {{1, 3, 2, 2}, std::vector<float>(12)}}}, {{"input_ids", {{1, 1}, std::vector<int64_t>(1)}}}}, true, false, {"logits", "pooler_output"}};
  return message;
}

TEST(StepMessage, DecodesToWhatWasEncoded) { EXPECT_EQ(decode(encode(example())), example()); }

TEST(StepMessage, RefusesEveryTruncation) {
  const std::vector<uint8_t> bytes = encode(example());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode({bytes.data(), length}), std::invalid_argument) << length;
  }
}

TEST(StepMessage, LeavesTheValuesOfInputsBehind) {
  StepMessage message;
  message.forward = ForwardJob{{{{"input_ids", {{1, 2}, std::vector<int64_t>{5, 6}}}}}, false, false, {}};
  const std::vector<uint8_t> bytes = encode(message);
  EXPECT_EQ(decode(bytes).forward->inputs.at(0).at("input_ids"), (Array{{1, 2}, std::vector<int64_t>{0, 0}}));
}

TEST(StepMessage, RefusesArraysThatNoRequestCanBring) {
  StepMessage message;
  message.forward = ForwardJob{{{{"input_ids", {{int64_t{1} << 29, 1 << 20}, std::vector<int64_t>{}}}}}, false, false, {}};
  EXPECT_THROW(decode(encode(message)), std::invalid_argument);
}

TEST(StepMessage, RefusesBytesAfterItsEnd) {
  std::vector<uint8_t> bytes = encode(example());
  bytes.push_back(0);
  EXPECT_THROW(decode(bytes), std::invalid_argument);
}

}  // namespace
}  // namespace pm::engine
