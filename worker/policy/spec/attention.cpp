// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/attention.h"

namespace pm::policy {

void LatentAttention::collect(ParamCollector& all) const {
  all.add(query_down);
  all.add(query_norm);
  all.add(down);
  all.add(norm.weight);
  all.add(norm.bias);
}

void Attention::collect(ParamCollector& all) const {
  all.add(norm);
  all.add(post_norm);
  all.add(query_norm);
  all.add(key_norm);
  all.add(value_norm);
  if (relative_content) {
    all.add(relative_content->table);
    all.add(relative_content->norm);
    if (relative_content->head_vectors) all.add(relative_content->head_vectors->vectors);
    for (const auto* term : {&relative_content->content_to_position, &relative_content->position_to_content}) {
      if (!*term) continue;
      all.add((*term)->projection);
      all.add((*term)->query_bias);
    }
    all.add(relative_content->content_bias);
    if (const auto& segments = relative_content->segments) {
      all.add(segments->states);
      all.add(segments->query_bias);
    }
  }
  if (content_buckets) all.add(content_buckets->linear);
  if (latent) latent->collect(all);
  all.add(query);
  all.add(key);
  all.add(value);
  if (projection_norms) {
    all.add(projection_norms->query.weight);
    all.add(projection_norms->key.weight);
  }
  if (entity_queries) entity_queries->collect(all);
  if (span_convolution) span_convolution->collect(all);
  if (const auto* window = std::get_if<SlidingWindow>(&pattern)) {
    all.add(window->key);
    all.add(window->value);
    all.add(window->query);
  }
  all.add(output_gate);
  all.add(sinks);
  all.add(out);
  if (relative_position_bias) all.add(relative_position_bias->table);
  if (quantized) quantized->collect(all);
}

}  // namespace pm::policy
