// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/arrays.h"

#include <ATen/ATen.h>

namespace pm::models {

Array array_of(const at::Tensor& tensor) {
  Array array{tensor.sizes().vec(), {}};
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    const at::Tensor whole = tensor.to(at::kCPU, at::kLong).contiguous();
    array.values =
        std::vector<int64_t>(whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel());
  } else {
    const at::Tensor whole = tensor.to(at::kCPU, at::kFloat).contiguous();
    array.values = std::vector<float>(whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel());
  }
  return array;
}

at::Tensor tensor_of(const Array& array) {
  return std::visit(
      [&](const auto& values) {
        using Value = typename std::decay_t<decltype(values)>::value_type;
        return at::from_blob(const_cast<Value*>(values.data()), array.shape,
                             at::TensorOptions(std::is_same_v<Value, float> ? at::kFloat : at::kLong));
      },
      array.values);
}

}  // namespace pm::models
