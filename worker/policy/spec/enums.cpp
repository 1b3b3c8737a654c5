// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/enums.h"

#include <utility>

namespace pm::policy {

std::optional<Activation> parse_config_activation(std::string_view word) {
  constexpr std::pair<std::string_view, Activation> aliases[] = {{"swish", Activation::Silu},
                                                                 {"gelu_pytorch_tanh", Activation::GeluNew},
                                                                 {"gelu_python", Activation::Gelu},
                                                                 {"gelu_fast", Activation::GeluNew},
                                                                 {"gelu_accurate", Activation::GeluNew},
                                                                 {"gelu_python_tanh", Activation::GeluNew}};
  for (const auto& [alias, activation] : aliases)
    if (alias == word) return activation;
  return parse<Activation>(word);
}

}  // namespace pm::policy
