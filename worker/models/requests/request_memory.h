// SPDX-License-Identifier: Apache-2.0
// The memories that a request brings to the layers of a stack, and those that it takes to the request after it.
#pragma once
#include <vector>

#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// Returns the memory of each layer [rows x length, hidden] fp32, one row's behind another's. Empty: the request has
/// none, or the stack. Throws Error{InvalidRequest} that names the tensor.
std::vector<at::Tensor> read_memory(const policy::Stack&, int64_t rows, RequestTensors&);
/// Appends the memories of a request of `rows` rows to those of requests with `rows_before`. Zeros stand for those of
/// requests that have none.
void append_memory(std::vector<at::Tensor>& all, int64_t rows_before, const std::vector<at::Tensor>& more,
                   int64_t rows);
/// Returns the input whose columns are the keys of layers that read a memory: its rows, then the tokens.
StackInput memory_keys(const policy::Memory&, const StackInput&);
/// Returns the memory of a layer after this request [rows, length, hidden]: the last of the memory before, then of the
/// states that came to the layer [tokens, hidden]. Undefined `before`: zeros.
at::Tensor next_memory(const policy::Memory&, const StackInput&, const at::Tensor& before, const at::Tensor& states);

}  // namespace pm::models
