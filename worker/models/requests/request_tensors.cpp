// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/request_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/base/error.h"
#include "worker/models/requests/arrays.h"

namespace pm::models {

void refuse(const std::string& message) { throw Error(Reason::InvalidRequest, message); }

void check_range(const std::string& name, const at::Tensor& values, int64_t first, int64_t end,
                 const std::string& what) {
  const auto least = values.min().item<int64_t>(), most = values.max().item<int64_t>();
  if (least < first || most >= end) {
    refuse(name + " has " + std::to_string(least < first ? least : most) + "; " + what + " go from " +
           std::to_string(first) + " to " + std::to_string(end - 1));
  }
}

void check_shapes(const Arrays& arrays) {
  for (const auto& [name, array] : arrays) {
    int64_t elements = 1;
    for (int64_t size : array.shape) {
      if (size < 0 || size > (int64_t{1} << 31) || elements > (int64_t{1} << 31))
        refuse(name + " has an impossible shape");
      elements *= size;
    }
    const size_t held = std::visit([](const auto& values) { return values.size(); }, array.values);
    if (held != static_cast<size_t>(elements))
      refuse(name + " has " + std::to_string(held) + " values, its shape asks for " + std::to_string(elements));
  }
}

const Array* RequestTensors::find(const std::string& name) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
  const auto found = arrays_.find(name);
  return found == arrays_.end() ? nullptr : &found->second;
}

at::Tensor RequestTensors::tensor(const std::string& name, int64_t dims, const std::string& expected) {
  const Array* array = find(name);
  if (!array) return {};
  at::Tensor tensor = tensor_of(*array);
  if (tensor.dim() == dims + 1 && model_.takes_choices()) {
    choices_ = tensor.size(1);
    tensor = tensor.flatten(0, 1);
  }
  if (tensor.dim() != dims || tensor.numel() == 0)
    refuse(name + " has the shape " + c10::str(tensor.sizes()) + ", expected " + expected);
  return tensor;
}

at::Tensor RequestTensors::ints(const std::string& name, const at::Tensor& like) {
  const Array* array = find(name);
  if (array && !std::holds_alternative<std::vector<int64_t>>(array->values))
    refuse(name + " has fractional values, expected integers");
  const at::Tensor values = tensor(name, 2, model_.takes_choices() ? "[batch, choices, length]" : "[batch, length]");
  if (values.defined() && like.defined() && values.sizes() != like.sizes()) {
    refuse(name + " has the shape " + c10::str(values.sizes()) + ", expected that of the ids, " +
           c10::str(like.sizes()));
  }
  return values;
}

at::Tensor RequestTensors::mask(const std::string& name, at::IntArrayRef shape) {
  const at::Tensor values = tensor(name, static_cast<int64_t>(shape.size()), c10::str(shape));
  if (!values.defined()) return {};
  if (values.sizes() != shape)
    refuse(name + " has the shape " + c10::str(values.sizes()) + ", expected " + c10::str(shape));
  if (!at::logical_or(values == 0, values == 1).all().item<bool>()) refuse(name + " has other values than 0 and 1");
  return values.to(at::kLong);
}

std::string RequestTensors::listed() const {
  std::string all;
  for (const std::string& name : known_) all += (all.empty() ? "" : ", ") + name;
  return all;
}

void RequestTensors::refuse_unknown() const {
  for (const auto& [name, array] : arrays_) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      refuse("\"" + name + "\" is not an input of " + model_.architecture + "; these are " + listed());
  }
}

}  // namespace pm::models
