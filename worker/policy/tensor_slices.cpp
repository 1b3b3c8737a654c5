// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/tensor_slices.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "worker/policy/roles.h"

namespace pm::policy {

namespace {

/// An interval of the stored tensor along its sharded dimension: `size` elements of that dimension, `step` apart.
struct Stretch {
  int64_t begin = 0, size = 0, step = 1;
};

void append(std::vector<Stretch>& stretches, int64_t begin, int64_t size) {
  if (size == 0) return;
  if (!stretches.empty() && stretches.back().begin + stretches.back().size == begin)
    stretches.back().size += size;
  else
    stretches.push_back({begin, size});
}

/// Calls body(head, first unit in the head, number of units) for each head that `range` overlaps.
template <typename Body>
void for_heads(Range range, int64_t block, Body body) {
  for (int64_t unit = range.begin; unit < range.end;) {
    const int64_t head = unit / block, end = std::min(range.end, (head + 1) * block);
    body(head, unit - head * block, end - unit);
    unit = end;
  }
}

/// Returns the intervals of `range` in the stored tensor. `unit` is the number of elements per unit; a head has
/// `block` units.
std::vector<Stretch> split_range(const Param& param, Range range, int64_t unit, int64_t extent) {
  std::vector<Stretch> stretches;
  switch (param.fused) {
    case Fused::None: {
      const int64_t head = unit / param.segments;
      for (int64_t segment = 0; segment < param.segments; ++segment)
        append(stretches, segment * (extent / param.segments) + range.begin * head, range.size() * head);
      break;
    }
    case Fused::Concat: {
      // the queries, whose heads are `group` times those of keys and values, come first
      const int64_t before = param.part == 0 ? 0 : (param.group + param.part - 1) * extent;
      append(stretches, before + range.begin * unit, range.size() * unit);
      break;
    }
    case Fused::Interleaved:
      if (range.size() > 0)
        stretches.push_back({range.begin * unit * param.parts + param.part, range.size() * unit, param.parts});
      break;
    case Fused::Strided:
      for (int64_t one = range.begin; one < range.end; ++one)
        append(stretches, param.offset + one * param.stride, unit);
      break;
    case Fused::PerHead:
      for_heads(range, param.block, [&](int64_t head, int64_t first, int64_t count) {
        append(stretches, ((head * param.parts + param.part) * param.block + first) * unit, count * unit);
      });
      break;
    case Fused::Grouped:
      for_heads(range, param.block, [&](int64_t head, int64_t first, int64_t count) {
        const bool query = param.part == 0;
        const int64_t group = query ? head / param.group : head;
        const int64_t place = query ? head % param.group : param.group + param.part - 1;
        append(stretches, ((group * (param.group + param.parts - 1) + place) * param.block + first) * unit,
               count * unit);
      });
      break;
    case Fused::Blocks: {
      const int64_t heads = extent / unit / param.block, per = heads / param.blocks;
      for_heads(range, param.block, [&](int64_t head, int64_t first, int64_t count) {
        const int64_t at = (head / per * param.parts + param.block_part) * per + head % per;
        append(stretches, (at * param.block + first) * unit, count * unit);
      });
      break;
    }
  }
  return stretches;
}

/// Returns the number of elements of one row.
int64_t row_elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

std::vector<int64_t> without_ones(std::vector<int64_t> shape, size_t dimensions) {
  while (shape.size() > dimensions && shape.front() == 1) shape.erase(shape.begin());
  while (shape.size() > dimensions && shape.back() == 1) shape.pop_back();
  return shape;
}

std::vector<int64_t> with_last_axes_merged(std::vector<int64_t> shape, size_t dimensions) {
  while (dimensions > 0 && shape.size() > dimensions) {
    const int64_t last = shape.back();
    shape.pop_back();
    shape.back() *= last;
  }
  return shape;
}

std::vector<int64_t> stored_shape(const Param& param) {
  const std::vector<int64_t>& stored = param.tensor->shape;
  if (param.members > 1) {
    std::vector<int64_t> shape = without_ones(stored, param.shape.size() + 1);
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    return shape;
  }
  if (is_transposed_in_blocks(param) && stored.size() == 3) return {stored[0] * stored[1], stored[2]};
  return with_last_axes_merged(without_ones(stored, param.shape.size()), param.shape.size());
}

int64_t member_rows(const Param& param) { return stored_shape(param)[0] / param.members; }

bool is_transposed_in_blocks(const Param& param) { return param.diagonal_blocks > 1 && param.conv1d; }

bool is_block_diagonal_by_inputs(const Param& param) {
  return param.diagonal_blocks > 1 && sharding_rule(param.role).dim == 1;
}

std::vector<TensorSlice> tensor_slices(const Param& param, Range range) {
  const ShardingRule rule = sharding_rule(param.role);
  const std::vector<int64_t> stored = stored_shape(param);
  // fused parts lie along the output dimension even where the role is not sharded
  const int dim = rule.dim >= 0 ? rule.dim : 0;
  const int64_t extent = param.shape.empty() ? 1 : param.shape[static_cast<size_t>(dim)];
  const int64_t units = rule.dim >= 0 ? param.units : 1;
  if (rule.dim < 0) range = {0, 1};
  if (range.begin < 0 || range.end > units || range.begin > range.end) {
    throw std::out_of_range("units [" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ") of " +
                            param.path + ", which has " + std::to_string(units));
  }
  const std::vector<Stretch> stretches = split_range(param, range, extent / units, extent);
  std::vector<TensorSlice> result;
  if (stored.size() < 2) {
    const int64_t before = param.members > 1 ? param.member * member_rows(param) : 0;
    for (const Stretch& stretch : stretches)
      result.push_back({0, 1, before + stretch.begin, stretch.size, 1, stretch.step});
    return result;
  }
  if (is_transposed_in_blocks(param)) {
    const bool by_inputs = is_block_diagonal_by_inputs(param);
    const int64_t inputs = param.shape[1] / (by_inputs ? param.diagonal_blocks : 1), outputs = stored[1];
    for (const Stretch& stretch : stretches) {
      if (by_inputs) {  // inputs are rows, those of all blocks below each other
        result.push_back({stretch.begin, stretch.size, 0, outputs});
        continue;
      }
      for_heads({stretch.begin, stretch.begin + stretch.size}, outputs,
                [&](int64_t block, int64_t first, int64_t count) {
                  result.push_back({block * inputs, inputs, first, count});
                });
    }
    return result;
  }
  if (is_block_diagonal_by_inputs(param)) {
    const int64_t inputs = extent / param.diagonal_blocks;
    for (const Stretch& stretch : stretches) {
      for_heads({stretch.begin, stretch.begin + stretch.size}, inputs,
                [&](int64_t block, int64_t first, int64_t count) {
                  result.push_back({block * param.shape[0], param.shape[0], first, count});
                });
    }
    return result;
  }
  const bool rows = (dim == 0) != param.conv1d;  // the sharded dimension is the stored tensor's first
  const int64_t own = member_rows(param), first = param.member * own;
  for (const Stretch& stretch : stretches) {
    if (rows)
      result.push_back({first + stretch.begin, stretch.size, 0, row_elements(stored), stretch.step, 1});
    else
      result.push_back({first, own, stretch.begin, stretch.size, 1, stretch.step});
  }
  return result;
}

std::vector<int64_t> local_shape(const Param& param, Range range) {
  const ShardingRule rule = sharding_rule(param.role);
  std::vector<int64_t> shape = param.shape;
  if (rule.dim < 0) return shape;
  int64_t& size = shape[static_cast<size_t>(rule.dim)];
  size = size / param.units * range.size();
  return shape;
}

int64_t scale_group(const Param& param) {
  const ShardingRule rule = sharding_rule(param.role);
  if (rule.dim != 1 || rule.axis == Axis::Ffn) return code_group;
  const int64_t head = param.shape[1] / param.units / param.segments;
  return head % code_group == 0 ? code_group : head;
}

int code_bits(const Param& param, DType precision) {
  if (!is_quantized(precision) || !param.matrix || param.keep) return 0;
  const bool wide = sharding_rule(param.role).axis == Axis::Vocab || scale_group(param) != code_group;
  return precision != DType::I4 || wide ? 8 : 4;
}

bool rounds_inputs(const Param& param, DType precision) {
  return precision == DType::I8A8 && code_bits(param, precision) > 0 && sharding_rule(param.role).axis != Axis::Vocab;
}

Range rank_range(const Param& param, const Partition& partition, int rank) {
  const ShardingRule rule = sharding_rule(param.role);
  if (rule.axis == Axis::None) return {0, param.units};
  return partition.range(rule.axis == Axis::Vocab ? "" : param.stack, rule.axis, param.units, rank, param.layout);
}

}  // namespace pm::policy
