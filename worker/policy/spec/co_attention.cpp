// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/co_attention.h"

namespace pm::policy {

void CoAttention::collect(ParamCollector& all) const {
  across.collect(all);
  attention.collect(all);
  mlp.collect(all);
}

}  // namespace pm::policy
