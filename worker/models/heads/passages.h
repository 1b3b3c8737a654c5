// SPDX-License-Identifier: Apache-2.0
// The head that finds the passages of an index for the pooled vector of a text. Each rank searches its shard.
#pragma once
#include <vector>

#include "worker/layers/search/passage_search.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class PassagesHead final : public Head {
 public:
  PassagesHead(const policy::Model&, const policy::Head&, const policy::PassagesSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  static void validate(const policy::Model&, const policy::Head&, const policy::PassagesSpec&);

 private:
  std::vector<layers::PassageRows> rows_;  ///< of this rank, one for each file
  int64_t count_;
};

}  // namespace pm::models
