// SPDX-License-Identifier: Apache-2.0
// A linear or a table of tokens that adapters may replace whole (PEFT's modules_to_save), on one rank: memory for what
// they have in its place, and the result of each row by that of its own adapter.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/layers/adapters/adapter_rows.h"
#include "worker/layers/loader.h"
#include "worker/ops/arena.h"
#include "worker/policy/adapter/saved_modules.h"

namespace pm::layers {

/// Its matrices are cut by rows as the linear's own, or whole where each rank has that whole. They replace the product,
/// and are no difference to it: the base's weights may be codes, whose error a difference would keep.
class SavedSite {
 public:
  /// Allocates memory for so many slots, the first ones, in the type of activations. `rows` outlives it.
  SavedSite(const policy::SavedTarget&, int64_t slots, const Loader&, ops::Arena&, const AdapterRows& rows);
  /// Returns x W^T + bias [rows, local out] in the type `result`, where rows whose adapter has a matrix of its own take
  /// that, and others what `base` makes of x. `base` is not called where no row takes it.
  at::Tensor linear(const at::Tensor& x, at::ScalarType result, const std::function<at::Tensor()>& base) const;
  /// The same of a table: rows [tokens, width] F32 of ids [tokens] int64, zero where another rank has the row.
  at::Tensor look_up(const at::Tensor& ids, const std::function<at::Tensor()>& base) const;
  /// Makes the slot empty: its rows take the base's.
  void clear(int32_t slot);
  /// Takes rows [count, in] of the whole matrix, from row `first` on, F32, as far as they lie here. Throws
  /// std::logic_error for a slot without memory.
  void load_weight(int32_t slot, int64_t first, const at::Tensor& rows);
  /// The same of the bias [count].
  void load_bias(int32_t slot, int64_t first, const at::Tensor& elements);

 private:
  at::Tensor replaced(const at::Tensor& x, const std::function<at::Tensor()>& base,
                      const std::function<at::Tensor(int32_t slot, const at::Tensor& some)>& own) const;
  void load(const at::Tensor& all, int32_t slot, int64_t first, const at::Tensor& rows);
  const AdapterRows& rows_;
  int64_t begin_;             ///< the first row of the whole matrix that lies here
  bool whole_;                ///< all rows lie here
  at::Tensor weight_, bias_;  ///< [slots, local out, in], [slots, local out]; undefined: none
  std::vector<bool> loaded_;  ///< by slot: its adapter has this module
};

}  // namespace pm::layers
