// A step's sequences as devices' kernels read them: one run of int32 numbers.
#pragma once
#include <cstdint>

#include "worker/ops/attention.h"

namespace pm::ops {

/// Rows of as many numbers as there are sequences; behind them the tables [sequences, table_stride] of blocks. Sequences of one query come first.
enum PackedRow : int64_t { PackedFirst, PackedTokens, PackedContexts, PackedKeys, PackedKeyRows, PackedRows };

constexpr int64_t packed_size(int64_t sequences, int64_t table_stride) { return sequences * (PackedRows + table_stride); }
/// Blocks that hold `keys` keys.
constexpr int64_t blocks_of_keys(int64_t keys) { return (keys + block_tokens - 1) / block_tokens; }
/// Writes `sequences` to `to`, of packed_size(places, table_stride); places beyond them are sequences without keys whose query is row i.
void pack(const Sequences& sequences, int64_t places, int64_t table_stride, int32_t* to);

}  // namespace pm::ops
