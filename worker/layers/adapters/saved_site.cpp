// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/adapters/saved_site.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/ops/linear.h"

namespace pm::layers {

namespace {

/// Returns the first row of a matrix that lies on this rank. Throws std::logic_error for one that is not cut by rows.
int64_t first_row(const policy::Param& weight, Range range, int64_t local_rows) {
  if (local_rows == weight.shape[0]) return 0;
  if (weight.units != weight.shape[0]) throw std::logic_error(weight.path + " is not cut by rows");
  return range.begin;
}

}  // namespace

SavedSite::SavedSite(const policy::SavedTarget& target, int64_t slots, const Loader& loader, ops::Arena& arena,
                     const AdapterRows& rows)
    : rows_(rows) {
  const Range range = loader.range(*target.weight);
  const std::vector<int64_t> shape = policy::local_shape(*target.weight, range);
  begin_ = first_row(*target.weight, range, shape[0]);
  whole_ = shape[0] == target.weight->shape[0];
  weight_ = arena.allocate({slots, shape[0], shape[1]}, loader.activation_type()).zero_();
  if (target.bias) bias_ = arena.allocate({slots, shape[0]}, loader.activation_type()).zero_();
  loaded_.resize(static_cast<size_t>(slots) + 1, false);
}

at::Tensor SavedSite::linear(const at::Tensor& x, at::ScalarType result,
                             const std::function<at::Tensor()>& base) const {
  return replaced(x, base, [&](int32_t slot, const at::Tensor& some) {
    return ops::linear(some, weight_.select(0, slot - 1), bias_.defined() ? bias_.select(0, slot - 1) : at::Tensor(),
                       result);
  });
}

at::Tensor SavedSite::look_up(const at::Tensor& ids, const std::function<at::Tensor()>& base) const {
  return replaced(ids, base, [&](int32_t slot, const at::Tensor& some) {
    const at::Tensor table = weight_.select(0, slot - 1);
    if (whole_) return at::index_select(table, 0, some).to(at::kFloat);
    const int64_t rows = table.size(0);
    if (rows == 0) return at::zeros({some.size(0), table.size(1)}, some.options().dtype(at::kFloat));
    const at::Tensor others = at::logical_or(some < begin_, some >= begin_ + rows).unsqueeze(1);
    return at::index_select(table, 0, (some - begin_).clamp(0, rows - 1)).to(at::kFloat).masked_fill(others, 0);
  });
}

at::Tensor SavedSite::replaced(const at::Tensor& x, const std::function<at::Tensor()>& base,
                               const std::function<at::Tensor(int32_t slot, const at::Tensor& some)>& own) const {
  const auto changes = [&](int32_t slot) {
    return static_cast<size_t>(slot) < loaded_.size() && loaded_[static_cast<size_t>(slot)];
  };
  if (std::none_of(rows_.used.begin(), rows_.used.end(), changes)) return base();
  if (rows_.uniform) return own(rows_.used[0], x);
  rows_.check(x.size(0));
  int64_t others = rows_.count;
  for (const AdapterRows::Group& group : rows_.groups) others -= changes(group.slot) ? group.count : 0;
  at::Tensor y = others > 0 ? base() : at::Tensor();
  for (const AdapterRows::Group& group : rows_.groups) {
    if (!changes(group.slot)) continue;
    const at::Tensor some = group.index.defined() ? at::index_select(x, 0, group.index)
                                                  : x.narrow(0, group.first, group.count),
                     made = own(group.slot, some);
    if (!y.defined()) y = at::empty({rows_.count, made.size(1)}, made.options());
    if (group.index.defined())
      y.index_copy_(0, group.index, made);
    else
      y.narrow(0, group.first, group.count).copy_(made);
  }
  return y;
}

void SavedSite::clear(int32_t slot) {
  if (static_cast<size_t>(slot) < loaded_.size()) loaded_[static_cast<size_t>(slot)] = false;
}

void SavedSite::load_weight(int32_t slot, int64_t first, const at::Tensor& rows) { load(weight_, slot, first, rows); }

void SavedSite::load_bias(int32_t slot, int64_t first, const at::Tensor& elements) {
  load(bias_, slot, first, elements);
}

void SavedSite::load(const at::Tensor& all, int32_t slot, int64_t first, const at::Tensor& rows) {
  if (static_cast<size_t>(slot) >= loaded_.size() || !all.defined())
    throw std::logic_error("a saved module was loaded into slot " + std::to_string(slot) + ", and memory is kept for " +
                           std::to_string(loaded_.size() - 1));
  const int64_t begin = std::max(first, begin_), end = std::min(first + rows.size(0), begin_ + all.size(1));
  if (end > begin)
    all.select(0, slot - 1).narrow(0, begin - begin_, end - begin).copy_(rows.narrow(0, begin - first, end - begin));
  loaded_[static_cast<size_t>(slot)] = true;
}

}  // namespace pm::layers
