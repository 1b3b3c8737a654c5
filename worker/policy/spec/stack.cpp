// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/stack.h"

#include <algorithm>

namespace pm::policy {

bool resizes_rows(const Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(),
                     [](const Layer& layer) { return layer.pooling || layer.upsampling; });
}

bool changes_rows(const Stack& stack) { return stack.input.latents || resizes_rows(stack); }

int64_t least_states(const Stack& stack) {
  const auto count = [](const Param& vectors) { return vectors.shape.empty() ? 0 : vectors.shape[0]; };
  const auto& queries = stack.output.queries;
  return std::max(stack.input.latents ? count(stack.input.latents->vectors) : 0,
                  queries && queries->vectors ? count(*queries->vectors) : 0);
}

int64_t hidden_state_of(const Stack& stack, int64_t number) {
  const auto end = stack.layers.begin() + std::min<int64_t>(number + 1, static_cast<int64_t>(stack.layers.size()));
  return number + std::count_if(stack.layers.begin(), end,
                                [](const Layer& layer) { return layer.upsampling || layer.repeats_state; });
}

bool shares_keys(const Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(),
                     [](const Layer& layer) { return layer.attention.reuses.has_value(); });
}

int64_t short_rope_tokens(const Stack& stack) {
  for (const Layer& layer : stack.layers)
    if (layer.attention.rotary && layer.attention.rotary->long_rope) return layer.attention.rotary->long_rope->original;
  return 0;
}

int64_t rotary_axes(const Stack& stack) {
  for (const Layer& layer : stack.layers)
    if (layer.attention.rotary && layer.attention.rotary->axes) return layer.attention.rotary->axes->count;
  return 0;
}

bool has_rows_of_tokens(const Stack& stack) {
  const Input& input = stack.input;
  return input.token && !input.features && !input.entities && !input.streams && !input.targets && !input.latents &&
         !input.quantized && !stack.memory && stack.joins.empty() && !resizes_rows(stack);
}

bool is_recurrent(const Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(),
                     [](const Layer& layer) { return layer.recurrent.has_value(); });
}

bool has_latent_attention(const Stack& stack) {
  return std::any_of(stack.layers.begin(), stack.layers.end(),
                     [](const Layer& layer) { return layer.attention.latent.has_value(); });
}

bool reads_padding(const Stack& stack) {
  return stack.input.trigram || resizes_rows(stack) ||
         std::any_of(stack.layers.begin(), stack.layers.end(), [&](const Layer& layer) {
           const auto& buckets = layer.attention.content_buckets;
           return layer.attention.span_convolution ||
                  (buckets && buckets->swapped_in_streams && stack.input.stream_count() > 0);
         });
}

}  // namespace pm::policy
