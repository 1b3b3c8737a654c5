// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/block_diagonal.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/ops/linear.h"
#include "worker/policy/roles.h"

namespace pm::layers {

BlockDiagonal::BlockDiagonal(const policy::Param& param, Loader& loader)
    : by_inputs_(policy::sharding_rule(param.role).dim == 1) {
  const int64_t out = param.shape[0], in = param.shape[1], count = param.diagonal_blocks;
  const int64_t block_out = by_inputs_ ? out : out / count, block_in = by_inputs_ ? in / count : in,
                along = by_inputs_ ? block_in : block_out,  // of a block, in the dimension that is sharded
      unit = (by_inputs_ ? in : out) / param.units;
  const Range units = loader.range(param), own{units.begin * unit, units.end * unit};
  outputs_ = by_inputs_ ? count * block_out : own.size();
  if (by_inputs_)
    weight_ = loader.sharded(param).value_or(Weight());
  else
    weight_ = loader.weight(param);
  for (int64_t block = 0; block < count; ++block) {
    const int64_t begin = std::max(own.begin, block * along), end = std::min(own.end, (block + 1) * along);
    if (begin >= end) continue;
    const Range local{begin - own.begin, end - own.begin};
    const Range inputs{block * block_in, (block + 1) * block_in}, outputs{block * block_out, (block + 1) * block_out};
    Block& made = blocks_.emplace_back(Block{.inputs = by_inputs_ ? local : inputs,
                                             .outputs = by_inputs_ ? outputs : local,
                                             .first = local.begin,
                                             .part = {}});
    if (!by_inputs_ || weight_.defined()) continue;
    made.part = policy::is_transposed_in_blocks(param)
                    ? loader.load_slice(param, {begin, end - begin, 0, block_out})
                    : loader.load_slice(param, {outputs.begin, block_out, begin - inputs.begin, end - begin});
  }
}

at::Tensor BlockDiagonal::operator()(const at::Tensor& x) const {
  at::Tensor y = at::zeros({x.size(0), outputs_}, x.options().dtype(at::kFloat));
  const at::Tensor whole = weight_.value();  // gathered once for all blocks
  for (const auto& [inputs, outputs, first, part] : blocks_) {
    const at::Tensor rows = part.defined() ? part
                            : by_inputs_   ? whole.narrow(1, first, inputs.size()).contiguous()
                                           : whole.narrow(0, first, outputs.size());
    y.narrow(1, outputs.begin, outputs.size())
        .copy_(ops::linear(x.narrow(1, inputs.begin, inputs.size()).contiguous(), rows));
  }
  return y;
}

}  // namespace pm::layers
