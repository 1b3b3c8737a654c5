// SPDX-License-Identifier: Apache-2.0
#include "worker/models/check_latent_attention.h"

namespace pm::models {

void check_latent_attention(const policy::Model& model, const policy::Stack& stack) {
  if (!policy::has_latent_attention(stack)) return;
  const auto refuse = [&](const std::string& what) {
    policy::refuse_architecture(model, "has latent attention " + what);
  };
  if (!policy::has_rows_of_tokens(stack)) refuse("beside rows that are not those of tokens alone");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& a = layer.attention;
    const std::optional<policy::LatentAttention>& first = stack.layers.front().attention.latent;
    if (!a.latent || !first || layer.recurrent || a.latent->width() != first->width())
      refuse("in some layers, or latents of unlike widths");
    if (layer.cross || layer.bottleneck || layer.branch || layer.co_attention ||
        layer.order == policy::Order::Reversible)
      refuse("beside cross-attention, a bottleneck, a convolution branch, a second stream or a second residual");
    if (a.is_sparse() || a.window > 0 || a.softcap != 0 || a.chunks || a.alibi || a.relative_position_bias ||
        a.relative_content || a.content_buckets || a.entity_queries || a.span_convolution || a.sinks || a.output_gate ||
        a.quantized || a.rotary->values || a.rotary->long_rope || !a.source.empty() || a.queries_apart ||
        a.values_apart)
      refuse("with a window, sinks, LongRoPE or further terms of scores");
  }
}

}  // namespace pm::models
