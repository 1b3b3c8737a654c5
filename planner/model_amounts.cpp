// SPDX-License-Identifier: Apache-2.0
// Counts layers, heads and bytes of a model's metadata.
#include "planner/model_metadata.h"

namespace pm {

int64_t layers_in(const std::vector<LayerRun>& runs) {
  int64_t layers = 0;
  for (const LayerRun& run : runs) layers += run.count;
  return layers;
}

std::vector<HeadLayout> head_layouts(const StackMetadata& stack) {
  if (stack.heads <= 0) return {};
  std::vector<HeadLayout> all{{stack.heads, stack.kv_heads, stack.head_dim, {}}};
  all.insert(all.end(), stack.layouts.begin(), stack.layouts.end());
  return all;
}

int64_t recurrent_layers(const StackMetadata& stack) { return layers_in(stack.recurrence.layers); }

int64_t cached_layers(const StackMetadata& stack, int number) {
  if (number > 0) return layers_in(stack.layouts[static_cast<size_t>(number) - 1].layers);
  int64_t layers = stack.recurrence.units > 0 ? layers_in(stack.recurrence.attending) : stack.layers;
  for (const KeyReuse& reuse : stack.reuses) layers -= layers_in(reuse.layers);
  for (const HeadLayout& layout : stack.layouts) layers -= layers_in(layout.layers);
  return layers;
}

DType compute_type(const ModelMetadata& metadata, DType precision) {
  if (!is_quantized(precision)) return precision;
  return metadata.dtype == DType::F16 || metadata.dtype == DType::BF16 ? metadata.dtype : DType::F32;
}

int64_t held_bytes(const ModelMetadata& metadata, const Part& part, int64_t units, DType precision) {
  const int64_t element = size_of(part.keep ? part.dtype : compute_type(metadata, precision));
  if (!is_quantized(precision)) return units * part.elements_per_unit * element;
  const Quantised& q = part.quantised;
  if (precision == DType::I8A8 && part.axis != Axis::Vocab) {
    return units * (part.elements_per_unit - q.elements) * element + units * q.elements +
           (units * q.rows + (units > 0 ? q.shared_rows : 0)) * scale_bytes;
  }
  const int64_t scales = units * q.scales + (units + code_group - 1) / code_group * q.block_scales;
  const int64_t others = units * (part.elements_per_unit - q.elements) * element + scales * scale_bytes;
  if (precision != DType::I4 || part.axis == Axis::Vocab) return others + units * q.elements;
  return others + units * q.wide_elements + (scales - units * q.wide_scales) * code_group / 2;
}

}  // namespace pm
