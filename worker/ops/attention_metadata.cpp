// SPDX-License-Identifier: Apache-2.0
// Packs attention metadata, and holds the graph capturer of each device type.
#include "worker/ops/attention_metadata.h"

#include <algorithm>
#include <array>

#include "worker/ops/graph.h"

namespace pm::ops {

void pack_metadata(std::span<const SequenceSpan> sequences, int64_t batch_size, int64_t table_stride, int32_t* to) {
  std::fill_n(to, metadata_size(batch_size, table_stride), 0);
  int64_t at[2] = {0, 0};  // next index of a prefill sequence, and of a decode sequence
  for (const SequenceSpan& sequence : sequences) at[0] += sequence.tokens == 1;
  const auto put = [&](MetadataRow row, int64_t index, int64_t value) {
    to[row * batch_size + index] = static_cast<int32_t>(value);
  };
  for (const SequenceSpan& sequence : sequences) {
    const int64_t i = at[sequence.tokens == 1]++;
    put(MetadataFirst, i, sequence.first), put(MetadataTokens, i, sequence.tokens),
        put(MetadataContexts, i, sequence.context);
    put(MetadataKeys, i, sequence.keys), put(MetadataKeyRows, i, sequence.key_row);
    if (!sequence.blocks.empty())
      std::copy_n(sequence.blocks.begin(), blocks_for(sequence.keys),
                  to + MetadataRows * batch_size + i * table_stride);
  }
  for (auto i = static_cast<int64_t>(sequences.size()); i < batch_size; ++i)
    put(MetadataFirst, i, i), put(MetadataTokens, i, 1);
}

namespace {

using GraphCapturers = std::array<GraphCapturer, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

GraphCapturers& graph_capturers() {
  static GraphCapturers all{};
  return all;
}

}  // namespace

void register_graph_capturer(at::DeviceType type, GraphCapturer graph_capturer) {
  graph_capturers()[static_cast<size_t>(type)] = graph_capturer;
}
GraphCapturer graph_capturer(at::DeviceType type) { return graph_capturers()[static_cast<size_t>(type)]; }

}  // namespace pm::ops
