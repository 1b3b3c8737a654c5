// See packed.h; and who records launches.
#include "worker/ops/packed.h"

#include <algorithm>
#include <array>

#include "worker/ops/graph.h"

namespace pm::ops {

void pack(const Sequences& sequences, int64_t places, int64_t table_stride, int32_t* to) {
  std::fill_n(to, packed_size(places, table_stride), 0);
  int64_t at[2] = {0, 0};   // where the next of several queries goes, and of one
  for (const SequenceSpan& sequence : sequences) at[0] += sequence.tokens == 1;
  const auto put = [&](PackedRow row, int64_t place, int64_t value) { to[row * places + place] = static_cast<int32_t>(value); };
  for (const SequenceSpan& sequence : sequences) {
    const int64_t i = at[sequence.tokens == 1]++;
    put(PackedFirst, i, sequence.first), put(PackedTokens, i, sequence.tokens), put(PackedContexts, i, sequence.context);
    put(PackedKeys, i, sequence.keys), put(PackedKeyRows, i, sequence.key_row);
    if (!sequence.blocks.empty()) std::copy_n(sequence.blocks.begin(), blocks_of_keys(sequence.keys), to + PackedRows * places + i * table_stride);
  }
  for (auto i = static_cast<int64_t>(sequences.size()); i < places; ++i) put(PackedFirst, i, i), put(PackedTokens, i, 1);
}

namespace {

using Recorders = std::array<Recorder, static_cast<size_t>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>;

Recorders& recorders() {
  static Recorders all{};
  return all;
}

}  // namespace

void use_recorder(at::DeviceType type, Recorder recorder) { recorders()[static_cast<size_t>(type)] = recorder; }
Recorder recorder(at::DeviceType type) { return recorders()[static_cast<size_t>(type)]; }

}  // namespace pm::ops
