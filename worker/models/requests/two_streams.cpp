// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/two_streams.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace pm::models {

RequestVectors read_vectors(const policy::Vectors& vectors, int64_t rows, RequestTensors& tensors) {
  RequestVectors found;
  std::vector<int64_t> shape;  // of the mask
  for (const policy::Vectors::Part& part : vectors.parts) {
    const int64_t width = part.projection.weight.shape[1];
    const std::string expected = (shape.empty() ? rows > 0 ? c10::str("[", rows, ", vectors, ") : "[rows, vectors, "
                                                : c10::str("[", shape[0], ", ", shape[1], ", ")) +
                                 std::to_string(width) + "]";
    const at::Tensor values = tensors.tensor(part.input, 3, expected);
    if (!values.defined()) refuse("the inputs have no tensor \"" + part.input + "\"");
    const bool fits =
        shape.empty() ? rows == 0 || values.size(0) == rows : values.size(0) == shape[0] && values.size(1) == shape[1];
    if (!fits || values.size(2) != width)
      refuse(part.input + " has the shape " + c10::str(values.sizes()) + ", expected " + expected);
    shape = {values.size(0), values.size(1)};
    found.parts.push_back(values.to(at::kFloat));
  }
  found.mask = tensors.mask(vectors.mask, shape);
  if (!found.mask.defined()) found.mask = at::ones(shape, at::kLong);
  return found;
}

layers::Batch two_streams(const layers::Batch& first, const layers::Batch& second) {
  const auto &firsts = first.sequences.spans, &seconds = second.sequences.spans;
  if (firsts.empty() || firsts.size() != seconds.size())
    throw std::logic_error("two streams have " + std::to_string(firsts.size()) + " and " +
                           std::to_string(seconds.size()) + " sequences");
  const int64_t behind = firsts.back().first + firsts.back().tokens;
  layers::Batch both;
  both.joined.resize(2);
  both.joined[0].sequences.spans = firsts;
  both.joined[1].sequences.spans = seconds;
  const auto add = [&](const ops::SequenceSpan& queries, int64_t first_row, const ops::SequenceSpan& keys,
                       int64_t key_row) {
    both.sequences.spans.push_back({.first = first_row + queries.first,
                                    .tokens = queries.tokens,
                                    .context = 0,
                                    .keys = keys.tokens,
                                    .key_row = key_row + keys.first,
                                    .blocks = {}});
  };
  for (size_t i = 0; i < firsts.size(); ++i) add(firsts[i], 0, seconds[i], behind);
  for (size_t i = 0; i < firsts.size(); ++i) add(seconds[i], behind, firsts[i], 0);
  return both;
}

StackInput joined_input(const StackInput& first) {
  StackInput joined = first;
  joined.batch = {};
  joined.batch.sequences.spans = first.batch.sequences.spans;
  return joined;
}

}  // namespace pm::models
