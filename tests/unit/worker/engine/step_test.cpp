// The step message survives the wire, and damaged bytes are refused.
#include <gtest/gtest.h>

#include "worker/engine/step.h"

namespace pm::engine {
namespace {

StepMessage example() {
  StepMessage message;
  message.step = 1'000'000'007;
  message.all_logits = true;
  message.freed = {3, 4};
  message.entries.push_back({7, 1, 32, {5, 6}, {9, 10}, {1, 2, 3}, true, {true, 0.7, 40, 0.9, 12345}});
  message.entries.push_back({});
  return message;
}

TEST(StepMessage, DecodesToWhatWasEncoded) { EXPECT_EQ(decode(encode(example())), example()); }

TEST(StepMessage, RefusesEveryTruncation) {
  const std::vector<uint8_t> bytes = encode(example());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode({bytes.data(), length}), std::invalid_argument) << length;
  }
}

TEST(StepMessage, RefusesBytesAfterItsEnd) {
  std::vector<uint8_t> bytes = encode(example());
  bytes.push_back(0);
  EXPECT_THROW(decode(bytes), std::invalid_argument);
}

}  // namespace
}  // namespace pm::engine
