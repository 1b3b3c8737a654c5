// SPDX-License-Identifier: Apache-2.0
// The head that searches answer spans in the padded states of each row.
#pragma once
#include "worker/models/heads/head.h"
#include "worker/models/heads/span_search.h"

namespace pm::models {

class SpansHead final : public Head {
 public:
  SpansHead(const policy::Model&, const policy::Head&, const policy::SpansSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses other than five outputs.
  static void validate(const policy::Model&, const policy::Head&, const policy::SpansSpec&);
  /// Reads p_mask, 1 where no answer begins or ends, and cls_index, whose token scores that there is none.
  static void read_inputs(const policy::Model&, const policy::SpansSpec&, const StackInput&, RequestTensors&, Inputs&);
  static void add_probe_inputs(const policy::Model&, const policy::Head&, const policy::SpansSpec&, ProbeInputs&);

 private:
  SpanSearch search_;
};

}  // namespace pm::models
