// SPDX-License-Identifier: Apache-2.0
// The head that compares chosen tokens with the dense vectors behind them.
#pragma once
#include <string>

#include "worker/layers/layers.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class PairsHead final : public Head {
 public:
  PairsHead(const policy::Model&, const policy::Head&, const policy::PairsSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses a stack without dense vectors.
  static void validate(const policy::Model&, const policy::Head&, const policy::PairsSpec&);
  /// Reads the columns of the chosen tokens.
  static void read_inputs(const policy::Model&, const policy::PairsSpec&, const StackInput&, RequestTensors&, Inputs&);
  static void add_probe_inputs(const policy::Model&, const policy::Head&, const policy::PairsSpec&, ProbeInputs&);

 private:
  at::Tensor scores(const at::Tensor& states, const at::Tensor& chosen, const at::Tensor& mask, int64_t first) const;
  layers::Linear query_, key_;
  std::string chosen_;
};

}  // namespace pm::models
