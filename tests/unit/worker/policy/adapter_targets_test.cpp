// SPDX-License-Identifier: Apache-2.0
// What an adapter in memory adds to the matrices of a tiny GPT-2.
#include "worker/policy/adapter/adapter_targets.h"

#include <gmock/gmock.h>

#include <cstring>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

/// An adapter of rank 1 of one layer's c_attn, [60, 20] as Linear would have it. All elements are `element`.
checkpoint::AdapterFolder adapter_of(float element, const std::string& alpha) {
  const std::string module = "base_model.model.transformer.h.1.attn.c_attn",
                    header = R"({")" + module +
                             R"(.lora_A.weight": {"dtype": "F32", "shape": [1, 20], "data_offsets": [0, 80]}, ")" +
                             module +
                             R"(.lora_B.weight": {"dtype": "F32", "shape": [60, 1], "data_offsets": [80, 320]}})";
  std::string data(320, '\0');
  for (size_t at = 0; at < data.size(); at += sizeof element) std::memcpy(data.data() + at, &element, sizeof element);
  const std::string config =
      R"({"peft_type": "LORA", "r": 1, "lora_alpha": )" + alpha + R"(, "target_modules": "attn\\.c_attn"})";
  return checkpoint::AdapterFolder::open(
      "a", {.config = checkpoint::in_memory(config),
            .weights = checkpoint::in_memory(checkpoint::number(header.size(), 8) + header + data)});
}

TEST(AdapterTargets, FactorsAreReadWithTheScaleInB) {
  const Resolved gpt2(tiny_gpt2());
  const AdapterTargets targets = adapter_targets(gpt2.model);
  const Arrays factors = read_factors(gpt2.model, targets, adapter_of(0.5f, "3"));
  ASSERT_EQ(factors.size(), 2u);
  EXPECT_EQ(factors.at("transformer.h.1.attn.c_attn.a"), (Array{{1, 20}, std::vector<float>(20, 0.5f)}));
  EXPECT_EQ(factors.at("transformer.h.1.attn.c_attn.b"), (Array{{60, 1}, std::vector<float>(60, 1.5f)}));
}

TEST(AdapterTargets, AFactorThatItsScaleMakesInfiniteIsRefused) {
  const Resolved gpt2(tiny_gpt2());
  const AdapterTargets targets = adapter_targets(gpt2.model);
  EXPECT_NO_THROW(read_factors(gpt2.model, targets, adapter_of(0, "1e300")));
  try {
    read_factors(gpt2.model, targets, adapter_of(2, "3e38"));
    FAIL() << "factors with infinities are read";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    EXPECT_THAT(error.what(), testing::HasSubstr("transformer.h.1.attn.c_attn"));
  }
}

}  // namespace
}  // namespace pm::policy
