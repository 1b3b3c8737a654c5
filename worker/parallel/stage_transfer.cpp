// SPDX-License-Identifier: Apache-2.0
// Implements the transfer. The wire format is [words, characters] int64; for each tensor the length of its name, its
// dimensions and its sizes as int64 words; all names; the tensors.
#include "worker/parallel/stage_transfer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

namespace pm::parallel {

namespace {

/// Views a vector as a tensor; the vector must outlive it.
template <typename T>
at::Tensor over(std::vector<T>& values, at::ScalarType type) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::TensorOptions(type));
}

}  // namespace

void send(const models::StageState& state, comm::Communicator& comm, int to) {
  std::vector<int64_t> words;
  std::vector<char> names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : state) {
    if (!tensor.defined()) continue;
    if (tensor.scalar_type() != at::kFloat)
      throw std::logic_error("\"" + name + "\" of a pipeline stage has dtype " + c10::toString(tensor.scalar_type()) +
                             ", expected float32");
    words.push_back(static_cast<int64_t>(name.size()));
    words.push_back(tensor.dim());
    for (const int64_t size : tensor.sizes()) words.push_back(size);
    names.insert(names.end(), name.begin(), name.end());
    tensors.push_back(tensor.contiguous());
  }
  std::vector<int64_t> head{static_cast<int64_t>(words.size()), static_cast<int64_t>(names.size())};
  comm.send(over(head, at::kLong), to);
  if (tensors.empty()) return;
  comm.send(over(words, at::kLong), to);
  comm.send(over(names, at::kChar), to);
  for (const at::Tensor& tensor : tensors) comm.send(tensor, to);
}

models::StageState receive(comm::Communicator& comm, int from, at::Device device) {
  const auto take = [&](at::Tensor tensor) { comm.recv(tensor, from); };
  std::vector<int64_t> head(2);
  take(over(head, at::kLong));
  models::StageState state;
  if (head[0] == 0) return state;
  std::vector<int64_t> words(static_cast<size_t>(head[0]));
  std::vector<char> names(static_cast<size_t>(head[1]));
  take(over(words, at::kLong));
  take(over(names, at::kChar));
  auto name = names.begin();
  for (auto word = words.begin(); word != words.end();) {
    const int64_t length = *word++, dimensions = *word++;
    const std::vector<int64_t> sizes(word, word + dimensions);
    word += dimensions;
    at::Tensor tensor = at::empty(sizes, at::TensorOptions(at::kFloat).device(device));
    comm.recv(tensor, from);
    state.emplace(std::string(name, name + length), std::move(tensor));
    name += length;
  }
  return state;
}

}  // namespace pm::parallel
