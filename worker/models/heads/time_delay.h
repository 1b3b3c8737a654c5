// SPDX-License-Identifier: Apache-2.0
// The head of speaker vectors: a time delay network over frames, and statistics over time.
#pragma once
#include <vector>

#include "worker/models/heads/scoring.h"

namespace pm::models {

class TimeDelayHead final : public Head {
 public:
  TimeDelayHead(const policy::Model&, const policy::Head&, const policy::TimeDelaySpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses a stack that does not read audio, or that stands beside others.
  static void validate(const policy::Model&, const policy::Head&, const policy::TimeDelaySpec&);
  /// Refuses rows of fewer frames than a standard deviation needs.
  static void read_inputs(const policy::Model&, const policy::TimeDelaySpec&, const StackInput&, RequestTensors&,
                          Inputs&);
  static void add_probe_inputs(const policy::Model&, const policy::Head&, const policy::TimeDelaySpec&, ProbeInputs&);

 private:
  struct Layer {
    at::Tensor weight, bias;  ///< [out, taps x in]
    int64_t taps, dilation;
  };
  const policy::TimeDelaySpec& spec_;
  HeadStates states_;
  HeadTransform transform_;
  std::vector<Layer> layers_;
  layers::Linear vector_, classes_;
};

}  // namespace pm::models
