// SPDX-License-Identifier: Apache-2.0
// Reads the named tensors of a request with checks and remembers which names the model knows.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Throws Error{InvalidRequest}.
[[noreturn]] void refuse(const std::string& message);
/// Refuses values of the tensor `name` outside [first, end); `what` names them in the message.
void check_range(const std::string& name, const at::Tensor& values, int64_t first, int64_t end,
                 const std::string& what);

/// Refuses arrays whose number of values does not match their shape.
void check_shapes(const Arrays& arrays);

class RequestTensors {
 public:
  RequestTensors(const policy::Model& model, const Arrays& arrays) : model_(model), arrays_(arrays) {}

  /// Returns the array with this name, or nullptr. The name counts as known to the model from then on.
  const Array* find(const std::string& name);
  /// Returns the tensor with `dims` dimensions; `expected` is the shape for messages. For multiple choice the choices
  /// become rows. Undefined when it is absent.
  at::Tensor tensor(const std::string& name, int64_t dims, const std::string& expected);
  /// Returns an int64 tensor [batch, length], of `like`'s shape when that is defined. Undefined when it is absent.
  at::Tensor ints(const std::string& name, const at::Tensor& like);
  /// Returns zeros and ones of this shape as int64, whatever their type in the request. Undefined when it is absent.
  at::Tensor mask(const std::string& name, at::IntArrayRef shape);
  /// Refuses arrays whose names the model does not know.
  void refuse_unknown() const;
  /// Returns the names that the model knows, for messages.
  std::string listed() const;
  /// The number of choices per question; 0 when rows are not choices.
  int64_t choices() const { return choices_; }

 private:
  const policy::Model& model_;
  const Arrays& arrays_;
  std::vector<std::string> known_;
  int64_t choices_ = 0;
};

}  // namespace pm::models
