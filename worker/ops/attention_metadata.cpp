// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/attention_metadata.h"

#include <algorithm>

namespace pm::ops {

std::vector<VarlenBatch> varlen_batches(std::span<const SequenceSpan> sequences, int64_t begin,
                                        std::vector<int32_t>& starts) {
  const bool cached =
      std::any_of(sequences.begin(), sequences.end(), [](const SequenceSpan& one) { return !one.blocks.empty(); });
  int64_t next = 0, rows = 0, longest = 0;  // next: index in the buffer, where single queries come first
  for (const SequenceSpan& sequence : sequences) {
    next += sequence.tokens == 1;
    rows += sequence.tokens;
    longest = std::max(longest, sequence.keys);
  }
  std::vector<VarlenBatch> batches;
  std::vector<std::vector<int32_t>> queries, keys;  // the starts of each batch
  for (const SequenceSpan& sequence : sequences) {
    if (cached && sequence.tokens == 1) continue;
    const auto follows = [&](const VarlenBatch& batch) {
      return sequence.first == batch.first + batch.tokens &&
             (cached ? batch.keys + sequence.keys <= std::max(longest, rows)
                     : sequence.key_row == batch.key_row + batch.keys);
    };
    if (batches.empty() || !follows(batches.back())) {
      batches.push_back({.first = sequence.first, .key_row = sequence.key_row, .sequence = next});
      queries.push_back({0});
      keys.push_back({0});
    }
    VarlenBatch& batch = batches.back();
    batch.tokens += sequence.tokens, batch.keys += sequence.keys, ++batch.sequences;
    batch.max_tokens = std::max(batch.max_tokens, sequence.tokens);
    batch.max_keys = std::max(batch.max_keys, sequence.keys);
    queries.back().push_back(static_cast<int32_t>(batch.tokens));
    keys.back().push_back(static_cast<int32_t>(batch.keys));
    ++next;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].query_starts = begin + static_cast<int64_t>(starts.size());
    starts.insert(starts.end(), queries[i].begin(), queries[i].end());
    batches[i].key_starts = begin + static_cast<int64_t>(starts.size());
    starts.insert(starts.end(), keys[i].begin(), keys[i].end());
  }
  return batches;
}

namespace {

/// Calls `visit` with the index in the metadata and the sequence, for each.
template <typename Visit>
void for_each_index(std::span<const SequenceSpan> sequences, Visit&& visit) {
  int64_t at[2] = {0, 0};  // next index of a prefill sequence, and of a decode sequence
  for (const SequenceSpan& sequence : sequences) at[0] += sequence.tokens == 1;
  for (const SequenceSpan& sequence : sequences) visit(at[sequence.tokens == 1]++, sequence);
}

}  // namespace

void pack_metadata_rows(std::span<const SequenceSpan> sequences, int64_t batch_size, int32_t* to) {
  std::fill_n(to, MetadataRows * batch_size, 0);
  const auto put = [&](MetadataRow row, int64_t index, int64_t value) {
    to[row * batch_size + index] = static_cast<int32_t>(value);
  };
  for_each_index(sequences, [&](int64_t i, const SequenceSpan& sequence) {
    put(MetadataFirst, i, sequence.first), put(MetadataTokens, i, sequence.tokens),
        put(MetadataContexts, i, sequence.context);
    put(MetadataKeys, i, sequence.keys), put(MetadataKeyRows, i, sequence.key_row);
  });
  for (auto i = static_cast<int64_t>(sequences.size()); i < batch_size; ++i)
    put(MetadataFirst, i, i), put(MetadataTokens, i, 1);
}

void pack_metadata(std::span<const SequenceSpan> sequences, int64_t batch_size, int64_t table_stride, int32_t* to) {
  pack_metadata_rows(sequences, batch_size, to);
  int32_t* tables = to + MetadataRows * batch_size;
  std::fill_n(tables, batch_size * table_stride, 0);
  for_each_index(sequences, [&](int64_t i, const SequenceSpan& sequence) {
    if (!sequence.blocks.empty())
      std::copy_n(sequence.blocks.begin(), blocks_for(sequence.keys), tables + i * table_stride);
  });
}

}  // namespace pm::ops
