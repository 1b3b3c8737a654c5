#include "controller/core/log.h"

namespace pm::k8s {

void start_logging(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program);
}

}  // namespace pm::k8s
