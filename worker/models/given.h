// The named tensors of a request, read with checks; remembers which names the model knows.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/policy/model.h"

namespace pm::models {

/// Throws Error{Request, "InvalidRequest"}.
[[noreturn]] void refuse(const std::string& message);
/// Refuses values outside [first, end) of the tensor `name`; `what` says what they are.
void in_range(const std::string& name, const at::Tensor& values, int64_t first, int64_t end, const std::string& what);

class Given {
 public:
  Given(const policy::Model& model, const Arrays& arrays) : model_(model), arrays_(arrays) {}

  /// The array under this name, which is one of the model's from now on; nullptr when it is absent.
  const Array* find(const std::string& name);
  /// The tensor with so many dimensions, `expected` in words; of a multiple choice its choices are laid below each other. Undefined when it is absent.
  at::Tensor tensor(const std::string& name, int64_t dims, const std::string& expected);
  /// An int64 tensor [batch, length], of `like`'s shape when that is defined. Undefined when it is absent.
  at::Tensor ints(const std::string& name, const at::Tensor& like);
  /// Zeros and ones of this shape as int64, whatever the type in which they are given. Undefined when it is absent.
  at::Tensor mask(const std::string& name, at::IntArrayRef shape);
  /// Refuses arrays that nobody has asked for.
  void refuse_unknown() const;
  /// The names that the model knows.
  std::string listed() const;
  /// > 0: rows are choices, so many to a question.
  int64_t choices() const { return choices_; }

 private:
  const policy::Model& model_;
  const Arrays& arrays_;
  std::vector<std::string> known_;
  int64_t choices_ = 0;
};

}  // namespace pm::models
