// SPDX-License-Identifier: Apache-2.0
// Which slices of a stored tensor hold a rank's units of a parameter.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/partition.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// A rectangular slice of a stored tensor viewed as [rows, cols], in elements. Its rows and columns lie so far apart.
struct TensorSlice {
  int64_t row = 0, rows = 0, col = 0, cols = 0, row_step = 1, col_step = 1;
};

/// Returns the shape without leading, then trailing dimensions of 1 that one of `dimensions` lacks: ViT's [1, rows,
/// hidden], the [out, in, 1] of a convolution of kernel size 1.
std::vector<int64_t> without_ones(std::vector<int64_t> shape, size_t dimensions);
/// Returns the shape with its last axes as one, so that there are at most `dimensions`: XLNet's [hidden, heads,
/// head_dim].
std::vector<int64_t> with_last_axes_merged(std::vector<int64_t> shape, size_t dimensions);
/// Returns the shape of the parameter's tensor in the checkpoint, without_ones() that the parameter lacks, its last
/// axes merged. Members of one tensor are rows of a matrix below each other, or parts of a vector.
std::vector<int64_t> stored_shape(const Param&);
/// Returns the stored rows of one member: all of them where the tensor is this parameter's alone.
int64_t member_rows(const Param&);
/// Returns true for a block-diagonal matrix that is stored as [blocks, inputs of one, outputs of one]. It is read as
/// [inputs, outputs of a block].
bool is_transposed_in_blocks(const Param&);
/// Returns true for a block-diagonal matrix whose inputs are sharded. Its slices lie beside each other, each with some
/// inputs of one block: all rows of the local tensor have a part in each.
bool is_block_diagonal_by_inputs(const Param&);
/// Returns the slices of the stored tensor that hold `range` units of the parameter, in the order in which they make
/// the local logical tensor when they are concatenated along its sharded dimension. With conv1d storage they are
/// concatenated along the matching stored dimension and transposed afterwards. 1-D tensors are viewed as [1, n],
/// tensors of more than two dimensions as [dim 0, rest].
std::vector<TensorSlice> tensor_slices(const Param&, Range range);
/// Returns the local logical shape of the parameter for `range`.
std::vector<int64_t> local_shape(const Param&, Range range);
/// Returns the number of inputs that share the scale of codes: code_group, or the head size where that is no multiple
/// of code_group and the inputs are sharded by heads, of attention or of a recurrence.
int64_t scale_group(const Param&);
/// Returns the bits of a code where `precision` holds the parameter as integer codes: 8 or 4; 0: it does not. I4 takes
/// 8 for the vocabulary, whose scores suffer most, and where a group is one head.
int code_bits(const Param&, DType precision);
/// Returns whether x is rounded to integers too, so that a scale belongs to one output and all inputs of a rank: with
/// I8A8, but for the vocabulary.
bool rounds_inputs(const Param&, DType precision);
/// Returns the units of the parameter that `rank` holds under `partition`.
Range rank_range(const Param&, const Partition& partition, int rank);

}  // namespace pm::policy
