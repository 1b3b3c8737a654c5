// SPDX-License-Identifier: Apache-2.0
// Dense vectors of a request that stand where a text has tokens.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// Dense vectors as the rows of a stack, such as regions of an image that a detector found. A row is the mean of
/// norm(projection(part)) over the parts: what a region shows, and where it lies (Tan and Bansal 2019, "LXMERT").
struct Vectors {
  struct Part {
    std::string input;  ///< name in the request: [rows, vectors, width]
    Linear projection;  ///< [hidden, width]
    std::optional<Norm> norm;
  };
  std::string mask;  ///< name in the request: [rows, vectors], 0 where a row has fewer vectors
  std::vector<Part> parts;

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
