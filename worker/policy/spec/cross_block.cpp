// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/cross_block.h"

namespace pm::policy {

void CrossBlock::collect(ParamCollector& all) const {
  all.add(source_norm);
  attention.collect(all);
  mlp.collect(all);
}

void Latents::collect(ParamCollector& all) const {
  all.add(vectors);
  block.collect(all);
}

void OutputQueries::collect(ParamCollector& all) const {
  all.add(vectors);
  block.collect(all);
}

}  // namespace pm::policy
