// See log.h.
#include "worker/base/log.h"

namespace pm {

void start_logging(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program);
}

}  // namespace pm
