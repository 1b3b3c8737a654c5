// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/lookup.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/layers/adapters/saved_site.h"

namespace pm::layers {

Table::Table(const policy::Param& table, Loader& loader)
    : table_(loader.weight(table, Access::LookUp)),
      rows_(loader.range(table)),
      whole_(loader.partition().ranks() == 1),
      saved_(loader.saved_site(table)) {
  if (table_.size(0) == table.shape[0]) rows_ = {0, table.shape[0]}, whole_ = true;
}

at::Tensor Table::partial(const at::Tensor& rows) const {
  return saved_ ? saved_->look_up(rows, [&] { return of_base(rows); }) : of_base(rows);
}

at::Tensor Table::of_base(const at::Tensor& rows) const {
  if (whole_) return table_.look_up(rows).to(at::kFloat);
  if (rows_.size() == 0) return at::zeros({rows.size(0), table_.size(1)}, rows.options().dtype(at::kFloat));
  const at::Tensor own =
      at::logical_and(rows >= rows_.begin, rows < rows_.end)
          .unsqueeze(
              1);  // others' rows are looked up too, and dropped: how many there are would be for the host to know
  return table_.look_up((rows - rows_.begin).clamp(0, rows_.size() - 1))
      .to(at::kFloat)
      .masked_fill(at::logical_not(own), 0);
}

LearnedRows::LearnedRows(const policy::Param& vectors, Loader& loader)
    : table_(vectors, loader), count_(vectors.shape.at(0)) {}

at::Tensor LearnedRows::operator()(int64_t sequences, at::Device device, comm::Communicator& comm) const {
  at::Tensor rows = table_.partial(at::arange(count_, at::TensorOptions(at::kLong).device(device))).contiguous();
  if (comm.size() > 1) comm.all_reduce(rows);
  return rows.repeat({sequences, 1});
}

}  // namespace pm::layers
