// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/support/repository.h"

namespace pm::test {

std::filesystem::path repository() { return PM_SOURCE; }

}  // namespace pm::test
