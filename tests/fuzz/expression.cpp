// SPDX-License-Identifier: Apache-2.0
// An expression of a policy, parsed and evaluated over a config.json that has every kind of value.
#include "worker/policy/expression.h"

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::json config = {{"hidden", 768},
                                        {"eps", 1e-5},
                                        {"act", "gated-gelu"},
                                        {"tied", true},
                                        {"none", nullptr},
                                        {"big", INT64_MAX},
                                        {"small", INT64_MIN},
                                        {"list", {1, "two", 3.0, {4}}},
                                        {"types", {{{"global", "local"}, 12}}},
                                        {"map", {{"a", {{"b", 2}}}}},
                                        {"nan", 1e308}};
  const std::string text = pm::fuzz::text(data, size);
  const pm::policy::Variables variables{.config = &config, .layer = 3};
  try {
    std::string missing;
    pm::policy::Expression(text).evaluate(variables, &missing);
  } catch (const pm::policy::ExpressionError&) {
  }
  return 0;
}
