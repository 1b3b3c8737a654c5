// Dense vectors of a request: read by their names, laid behind the tokens of their rows, joined with those of other requests.
#pragma once
#include "worker/layers/batch.h"
#include "worker/models/given.h"

namespace pm::models {

/// What a request gives of a stack's features; all undefined when it gives none.
struct GivenFeatures {
  at::Tensor values;                         ///< [rows, vectors, width] fp32
  at::Tensor mask;                           ///< [rows, vectors] int64
  std::map<std::string, at::Tensor> types;   ///< [rows, vectors] int64 by the table's key; absent: the usual row
  at::Tensor align;                          ///< [rows, vectors, positions] int64
};

/// Reads the features of rows with these ids [rows, length]. Throws Error{Request, "InvalidRequest"} that names the tensor.
GivenFeatures read_features(const policy::Stack&, const at::Tensor& ids, Given&);
/// Those that the mask keeps as rows of a batch whose rows stand at `places` of [rows x length], behind `tokens` columns of tokens.
layers::FeatureRows lay_out_features(const GivenFeatures&, int64_t tokens, const at::Tensor& places, int64_t length);
/// Puts `more` behind `all`; its batch's rows begin at `row`.
void append_features(layers::FeatureRows& all, const layers::FeatureRows& more, int64_t row);

}  // namespace pm::models
