// SPDX-License-Identifier: Apache-2.0
// The head that gives the masks of detected objects.
#pragma once
#include <vector>

#include "worker/layers/layers.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class MasksHead final : public Head {
 public:
  MasksHead(const policy::Model&, const policy::Head&, const policy::MasksSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;

 private:
  struct Convolution {
    at::Tensor kernel, bias, scale, shift;  ///< the last two of the group norm; undefined: there is none
    double eps = 0;
    Convolution(const policy::Linear&, layers::Loader&);
    Convolution(const policy::MaskConvolution&, layers::Loader&);
    at::Tensor operator()(const at::Tensor& x, policy::Activation) const;
  };
  struct Fusion {
    Convolution adapter, refine;
  };
  at::Tensor attention(const at::Tensor& states, const at::Tensor& memory, const at::Tensor& cells) const;
  at::Tensor enlarged(const at::Tensor& attention, const std::vector<at::Tensor>& maps) const;
  std::string cells_;
  int64_t heads_;
  policy::Activation activation_;
  layers::Linear query_, key_;
  std::vector<Convolution> convolutions_;
  std::vector<Fusion> fusions_;
  Convolution output_;
};

}  // namespace pm::models
