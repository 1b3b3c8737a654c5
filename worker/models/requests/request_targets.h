// SPDX-License-Identifier: Apache-2.0
// Tokens of a request that are to be predicted, and which tokens see which.
#pragma once
#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"

namespace pm::models {

/// What a request says of its targets; undefined where it says nothing.
struct RequestTargets {
  at::Tensor positions;  ///< [rows, targets] int64: the column of each target
  at::Tensor hidden;     ///< [rows, length, length] bool: queries that do not see keys
  /// Returns the mask of the rows of targets [rows, targets], all ones; undefined where there are none.
  at::Tensor mask() const;
};

/// Reads the tensors of a stack's policy::Targets; nothing for a stack without them. `ids` and `mask` are those of the
/// tokens. Throws Error{InvalidRequest} that names the tensor.
RequestTargets read_targets(const policy::Model&, const policy::Stack&, const at::Tensor& ids, const at::Tensor& mask,
                            RequestTensors&);
/// Returns the values of tokens [rows, length] and of targets [rows, targets] in the order of the batch's rows.
at::Tensor beside_targets(const at::Tensor& of_tokens, const at::Tensor& of_targets, const StackInput&);
/// Completes the layout of rows whose targets stand behind their tokens: targets are no keys, stand at their columns,
/// and see what the tokens there see, but for themselves where these are hidden from themselves.
void lay_out_targets(const RequestTargets&, bool causal, StackInput&);

}  // namespace pm::models
