// SPDX-License-Identifier: Apache-2.0
// Attention metadata: a step's sequences as one int32 buffer for the kernels of a device.
#pragma once
#include <cstdint>
#include <span>

#include "worker/ops/attention.h"

namespace pm::ops {

/// Rows of the buffer, one value for each sequence; the block tables [sequences, table_stride] follow them. Sequences
/// with a single query (decode) come first.
enum MetadataRow : int64_t {
  MetadataFirst,
  MetadataTokens,
  MetadataContexts,
  MetadataKeys,
  MetadataKeyRows,
  MetadataRows
};

constexpr int64_t metadata_size(int64_t sequences, int64_t table_stride) {
  return sequences * (MetadataRows + table_stride);
}
/// Writes `sequences` to `to`, a buffer of metadata_size(batch_size, table_stride) elements. Entries from
/// sequences.size() to batch_size are padding: sequences without keys, whose query is row i.
void pack_metadata(std::span<const SequenceSpan> sequences, int64_t batch_size, int64_t table_stride, int32_t* to);

}  // namespace pm::ops
