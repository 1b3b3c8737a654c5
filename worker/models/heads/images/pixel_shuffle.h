// SPDX-License-Identifier: Apache-2.0
// The head that fills in the pixels of an image from the states of its patches.
#pragma once
#include "worker/models/heads/head.h"

namespace pm::models {

class PixelShuffleHead final : public Head {
 public:
  PixelShuffleHead(const policy::Model&, const policy::Head&, const policy::PixelShuffleSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses a stack that reads no patches of images.
  static void validate(const policy::Model&, const policy::Head&, const policy::PixelShuffleSpec&);

 private:
  int64_t size_;
  at::Tensor weight_, bias_;  ///< [channels x size x size, width, 1, 1] and its rows
};

}  // namespace pm::models
