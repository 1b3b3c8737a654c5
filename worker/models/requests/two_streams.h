// SPDX-License-Identifier: Apache-2.0
// Dense vectors of a request in place of tokens, and batches of two streams that attend to each other.
#pragma once
#include <vector>

#include "worker/layers/batch.h"
#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/input/dense_vectors.h"

namespace pm::models {

/// The vectors of a request.
struct RequestVectors {
  std::vector<at::Tensor> parts;  ///< [rows, vectors, width] fp32 of each part
  at::Tensor mask;                ///< [rows, vectors] int64
};

/// Reads the vectors of rows; `rows` is how many there have to be, 0: any number. Throws Error{InvalidRequest} that
/// names the tensor.
RequestVectors read_vectors(const policy::Vectors&, int64_t rows, RequestTensors&);
/// Returns the rows of the first batch, then those of the second. Each sequence of one sees its counterpart of the
/// other. `streams` of the result have the sequences of both, each of which sees itself.
layers::Batch two_streams(const layers::Batch& first, const layers::Batch& second);
/// Returns the input of a stack that joins another to that one: the same sequences, without anything to embed.
StackInput joined_input(const StackInput& first);

}  // namespace pm::models
