// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/stack.h"

#include <algorithm>

namespace pm::policy {

bool reads_padding(const Stack& stack) {
  return stack.input.trigram || std::any_of(stack.layers.begin(), stack.layers.end(), [](const Layer& layer) {
           return layer.attention.span_convolution.has_value();
         });
}

}  // namespace pm::policy
