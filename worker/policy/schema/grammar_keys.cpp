// SPDX-License-Identifier: Apache-2.0
// The keys of each section of a policy, for the page that lists them.
#include <algorithm>

#include "worker/policy/document.h"
#include "worker/policy/schema/grammar.h"

namespace pm::policy {

namespace {

/// Returns the names of the rule's keys that `base` lacks.
std::vector<std::string> own_keys(const Rule& rule, const Rule& base = {}) {
  std::vector<std::string> names;
  for (const Key& key : rule.keys) {
    const bool shared =
        std::any_of(base.keys.begin(), base.keys.end(), [&](const Key& other) { return other.name == key.name; });
    if (!shared) names.emplace_back(key.name);
  }
  return names;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> grammar_keys() {
  const Rule &policy = grammar(), &stack = under(policy, "stacks").keys[0].rule,
             &head = under(policy, "heads").keys[0].rule;
  const Rule &input = under(stack, "input"), &attn = under(stack, "attn"), &output = under(stack, "output"),
             &plain = under(input, "token"), &experts = under(under(stack, "mlp"), "experts"),
             &matrix = under(experts, "router"), &images = under(policy, "images"),
             &projector = under(images, "projector");
  return {{"policy", own_keys(policy)},
          {"architecture", own_keys(under(policy, "architectures").keys[0].rule)},
          {"recompute", own_keys(under(under(policy, "architectures").keys[0].rule, "recompute"))},
          {"compose", own_keys(under(policy, "compose"))},
          {"images", own_keys(images)},
          {"projector", own_keys(projector)},
          {"deepstack", own_keys(under(images, "deepstack"), projector)},
          {"retrieve", own_keys(under(policy, "retrieve"))},
          {"stack", own_keys(stack)},
          {"input", own_keys(input)},
          {"convolutions", own_keys(under(input, "convolutions"))},
          {"backbone", own_keys(under(input, "backbone"))},
          {"stem", own_keys(under(under(input, "backbone"), "stem"))},
          {"block", own_keys(under(under(input, "backbone"), "block"), under(under(input, "backbone"), "stem"))},
          {"shortcut", own_keys(under(under(under(input, "backbone"), "block"), "shortcut"))},
          {"queries", own_keys(under(input, "queries"), plain)},
          {"pixels", own_keys(under(input, "pixels"))},
          {"positions", own_keys(under(under(input, "pixels"), "positions"), plain)},
          {"fourier", own_keys(under(under(input, "pixels"), "fourier"))},
          {"latents", own_keys(under(input, "latents"), plain)},
          {"quantized input", own_keys(under(input, "quantized"))},
          {"position", own_keys(under(input, "position"))},
          {"axial", own_keys(under(under(input, "position"), "axial"))},
          {"convolution", own_keys(under(under(input, "position"), "convolution"), matrix)},
          {"batch_norm", own_keys(under(under(under(input, "position"), "convolution"), "batch_norm"), plain)},
          {"tables", own_keys(under(input, "tables"), plain)},
          {"features", own_keys(under(input, "features"), matrix)},
          {"entities", own_keys(under(input, "entities"))},
          {"clusters", own_keys(under(input, "clusters"))},
          {"streams", own_keys(under(input, "streams"), plain)},
          {"targets", own_keys(under(input, "targets"), plain)},
          {"vectors", own_keys(under(input, "vectors"))},
          {"parts", own_keys(under(under(input, "vectors"), "parts"), matrix)},
          {"patches", own_keys(under(input, "patches"), matrix)},
          {"positions of patches", own_keys(under(under(input, "patches"), "positions"), plain)},
          {"layer", own_keys(under(stack, "layer"))},
          {"per_layer_input", own_keys(under(under(stack, "layer"), "per_layer_input"))},
          {"per_layer_inputs", own_keys(under(input, "per_layer_inputs"))},
          {"mtp", own_keys(under(stack, "mtp"))},
          {"convolution_branch", own_keys(under(under(stack, "layer"), "convolution_branch"), matrix)},
          {"bottleneck", own_keys(under(under(stack, "layer"), "bottleneck"))},
          {"pooling", own_keys(under(under(stack, "layer"), "pooling"))},
          {"upsampling", own_keys(under(under(stack, "layer"), "upsampling"))},
          {"memory", own_keys(under(under(stack, "layer"), "memory"))},
          {"attn", own_keys(attn)},
          {"reuses", own_keys(under(attn, "reuses"))},
          {"delta_net", own_keys(under(stack, "delta_net"))},
          {"short_convolution", own_keys(under(stack, "short_convolution"))},
          {"state_space", own_keys(under(stack, "state_space"))},
          {"cross", own_keys(under(stack, "cross"), attn)},
          {"latent", own_keys(under(attn, "latent"))},
          {"sliding_window", own_keys(under(attn, "sliding_window"))},
          {"block_sparse", own_keys(under(attn, "block_sparse"))},
          {"chunks", own_keys(under(attn, "chunks"))},
          {"hashes", own_keys(under(under(attn, "chunks"), "hashes"))},
          {"quantized attention", own_keys(under(attn, "quantized"))},
          {"alibi", own_keys(under(attn, "alibi"))},
          {"rotary", own_keys(under(attn, "rotary"))},
          {"longrope", own_keys(under(under(attn, "rotary"), "longrope"))},
          {"query_growth", own_keys(under(under(attn, "rotary"), "query_growth"))},
          {"axes", own_keys(under(under(attn, "rotary"), "axes"))},
          {"relative_position_bias", own_keys(under(attn, "relative_position_bias"), plain)},
          {"relative_content", own_keys(under(attn, "relative_content"))},
          {"head_vectors", own_keys(under(under(attn, "relative_content"), "head_vectors"), plain)},
          {"content_to_position", own_keys(under(under(attn, "relative_content"), "content_to_position"), matrix)},
          {"segments", own_keys(under(under(attn, "relative_content"), "segments"), plain)},
          {"content_buckets", own_keys(under(attn, "content_buckets"), matrix)},
          {"entity_queries", own_keys(under(attn, "entity_queries"))},
          {"span_convolution", own_keys(under(attn, "span_convolution"))},
          {"qkv", own_keys(under(attn, "qkv"), matrix)},
          {"fused", own_keys(under(under(attn, "qkv"), "fused"))},
          {"mlp", own_keys(under(stack, "mlp"))},
          {"xielu", own_keys(under(under(stack, "mlp"), "xielu"))},
          {"gate_up", own_keys(under(under(stack, "mlp"), "gate_up"), matrix)},
          {"experts", own_keys(experts)},
          {"shared", own_keys(under(under(stack, "mlp"), "shared"))},
          {"quantized mlp", own_keys(under(under(stack, "mlp"), "quantized"))},
          {"second", own_keys(under(stack, "second"))},
          {"beside_mlp", own_keys(under(stack, "beside_mlp"), under(stack, "mlp"))},
          {"stacked_mlp", own_keys(under(stack, "stacked_mlp"), under(stack, "mlp"))},
          {"output", own_keys(output)},
          {"latent_queries", own_keys(under(output, "latent_queries"), under(input, "latents"))},
          {"pooler", own_keys(under(output, "pooler"), plain)},
          {"head", own_keys(head)},
          {"logits", own_keys(under(head, "logits"), matrix)},
          {"concat", own_keys(under(under(head, "logits"), "concat"), plain)},
          {"classes", own_keys(under(head, "classes"), matrix)},
          {"cells", own_keys(under(head, "cells"))},
          {"spans", own_keys(under(head, "spans"))},
          {"pairs", own_keys(under(head, "pairs"))},
          {"time_delay", own_keys(under(head, "time_delay"))},
          {"codebook", own_keys(under(head, "codebook"))},
          {"boxes", own_keys(under(head, "boxes"))},
          {"pixel_shuffle", own_keys(under(head, "pixel_shuffle"), matrix)},
          {"score_clusters", own_keys(under(head, "score_clusters"))},
          {"masks", own_keys(under(head, "masks"))},
          {"fusion", own_keys(under(under(head, "masks"), "fusion"))},
          {"refine", own_keys(under(under(under(head, "masks"), "fusion"), "refine"), matrix)},
          {"parameter", own_keys(plain)},
          {"linear", own_keys(matrix, plain)},
          {"projection", own_keys(under(attn, "q"), matrix)},
          {"norm", own_keys(under(attn, "norm"), plain)},
          {"bias", own_keys(under(matrix, "bias"))}};
}

}  // namespace pm::policy
