// glog behind one header. Include it last: c10 defines LOG and CHECK too, and whoever comes last wins.
#pragma once
#include <c10/util/Logging.h>
#undef LOG
#undef VLOG
#undef CHECK
#undef DCHECK
#include <glog/logging.h>

namespace pm {

/// Starts logging to stderr in one-line form; called once by main.
void start_logging(const char* program);

}  // namespace pm
