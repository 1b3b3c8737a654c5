// SPDX-License-Identifier: Apache-2.0
// Attention metadata: a step's sequences as one int32 buffer for the kernels of a device.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

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
/// pack_metadata_rows() writes the rows before the block tables only.
void pack_metadata(std::span<const SequenceSpan> sequences, int64_t batch_size, int64_t table_stride, int32_t* to);
void pack_metadata_rows(std::span<const SequenceSpan> sequences, int64_t batch_size, int32_t* to);

/// Returns the sequences as few batches; sequences with one query and a cache are left out, for decode attention takes
/// them. The keys that a batch gathers from the cache are at most those of the longest sequence, or as many as the step
/// has tokens. So they take no more memory than one sequence of the model's length, which the planner counts
/// (activation_bytes) and the largest step of the warm-up has. Appends the starts of each batch to `starts`; they are
/// to follow the other metadata in the buffer, from element `begin` on.
std::vector<VarlenBatch> varlen_batches(std::span<const SequenceSpan> sequences, int64_t begin,
                                        std::vector<int32_t>& starts);

}  // namespace pm::ops
