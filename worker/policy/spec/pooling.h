// SPDX-License-Identifier: Apache-2.0
// What makes the rows of a sequence fewer between layers, and as many as its tokens again (Dai et al.,
// "Funnel-Transformer", 2020).
#pragma once
#include <cstdint>

namespace pm::policy {

enum class PoolingKind : uint8_t { Mean, Max };

/// Before the layer two rows beside each other become one. Sequences that are too short for it keep their rows.
struct Pooling {
  PoolingKind kind = PoolingKind::Mean;
  bool class_apart = false;   ///< the first row is no part of a pair
  bool truncate = false;      ///< with `class_apart`: the last row is dropped before rows are paired
  bool queries_only = false;  ///< keys and values are those of the rows before
};

/// Before the layer each row stands `stride` times again, and the states that came to an earlier layer are added.
struct Upsampling {
  int64_t stride = 1;
  int64_t added_layer = 0;   ///< the layer to which those states came; rows were not pooled before it
  bool class_apart = false;  ///< the first row stands once
};

}  // namespace pm::policy
