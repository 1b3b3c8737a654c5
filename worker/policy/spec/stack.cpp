// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/stack.h"

#include <algorithm>

namespace pm::policy {

bool reads_padding(const Stack& stack) {
  return stack.input.trigram || std::any_of(stack.layers.begin(), stack.layers.end(), [&](const Layer& layer) {
           const auto& buckets = layer.attention.content_buckets;
           return layer.attention.span_convolution ||
                  (buckets && buckets->swapped_in_streams && stack.input.stream_count() > 0);
         });
}

}  // namespace pm::policy
