// SPDX-License-Identifier: Apache-2.0
// Reads the dense vectors of a request, places them after the tokens of their rows, and joins those of several
// requests.
#pragma once
#include "worker/layers/batch.h"
#include "worker/models/requests/request_tensors.h"

namespace pm::models {

/// The features of a request; all undefined when it has none.
struct RequestFeatures {
  at::Tensor values;                        ///< [rows, vectors, width] fp32
  at::Tensor mask;                          ///< [rows, vectors] int64
  std::map<std::string, at::Tensor> types;  ///< [rows, vectors] int64 by the table's key; absent: default_row
  at::Tensor align;                         ///< [rows, vectors, positions] int64
};

/// Reads the features of rows with these ids [rows, length]. Throws Error{InvalidRequest} that names the
/// tensor.
RequestFeatures read_features(const policy::Stack&, const at::Tensor& ids, RequestTensors&);
/// Returns the vectors that are not masked as rows of a batch. The batch's rows stand at `places` of [rows x length];
/// the vectors follow `tokens` columns of tokens.
layers::FeatureRows lay_out_features(const RequestFeatures&, int64_t tokens, const at::Tensor& places, int64_t length);
/// Appends `more` to `all`; the rows of its batch begin at `row`.
void append_features(layers::FeatureRows& all, const layers::FeatureRows& more, int64_t row);

}  // namespace pm::models
