// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

namespace pm::base {

void start_logging(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program);
}

}  // namespace pm::base
