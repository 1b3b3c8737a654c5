// For tests of what happens when NCCL itself reports an error.
#pragma once
#include <atomic>

struct ncclComm;

namespace pm::pretend {

/// From here on the communicator says that a remote process exited.
void break_nccl(ncclComm*);
/// Of this process.
extern std::atomic<ncclComm*> last_joined;

}  // namespace pm::pretend
