// SPDX-License-Identifier: Apache-2.0
// The mean of two heads of classes, as DeiT's two classifiers have it.
#pragma once
#include "worker/layers/loader.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class MeanHead final : public Head {
 public:
  MeanHead(const policy::Model&, const policy::Head&, const policy::MeanSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses heads that stand behind this one, that score every token, or that have different classes.
  static void validate(const policy::Model&, const policy::Head&, const policy::MeanSpec&);

 private:
  const policy::MeanSpec& spec_;
};

}  // namespace pm::models
