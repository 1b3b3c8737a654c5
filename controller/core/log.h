// glog behind one header for the controller. LOG and CHECK of glog, nothing of torch.
#pragma once
#include <glog/logging.h>

namespace pm::k8s {

/// Starts logging to stderr; called once by main.
void start_logging(const char* program);

}  // namespace pm::k8s
