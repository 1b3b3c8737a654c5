// SPDX-License-Identifier: Apache-2.0
// Includes glog. This header must be the last include of a file, because torch's c10 defines LOG and CHECK too and the
// last definition wins.
#pragma once
#undef LOG
#undef VLOG
#undef CHECK
#undef DCHECK
#include <glog/logging.h>

namespace pm::base {

/// Initializes glog to write single lines to stderr. main calls it once.
void start_logging(const char* program);

}  // namespace pm::base
