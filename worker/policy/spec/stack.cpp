// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/stack.h"

namespace pm::policy {

bool reads_padding(const Stack& stack) { return stack.input.trigram; }

}  // namespace pm::policy
