// SPDX-License-Identifier: Apache-2.0
// Builder: short convolutions with gates.
#include <numeric>

#include "planner/model_metadata.h"
#include "worker/policy/builder.h"

namespace pm::policy {

ShortConvolution Builder::short_convolution(const Context& context, const Node& section, const Scope& scope,
                                            const std::string& path) {
  const auto row = [&](const char* key) -> const Node& { return needed_row(section, "short_convolution", key); };
  const int64_t hidden = context.sizes.hidden;
  ShortConvolution block;
  block.taps = small_size(section, "taps", scope);
  block.width = std::gcd(hidden, code_group);  // so that codes of a group lie on one rank
  block.units = hidden / block.width;
  unit_parts(context, row("in"), scope, path,
             {{".before", block.width, Role::RecurrentWeight, &block.before},
              {".behind", block.width, Role::RecurrentWeight, &block.behind},
              {".input", block.width, Role::RecurrentWeight, &block.input}},
             {hidden}, block.units, false);
  unit_parts(context, row("convolution"), scope, path,
             {{".convolution", block.width, Role::RecurrentVector, &block.convolution}}, {1, block.taps}, block.units,
             false);
  row("out");
  block.out = recurrent_out(context, section, scope, path, hidden, block.units);
  return block;
}

}  // namespace pm::policy
