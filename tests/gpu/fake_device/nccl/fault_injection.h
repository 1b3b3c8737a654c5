// SPDX-License-Identifier: Apache-2.0
// Fault injection for tests of errors that NCCL itself reports.
#pragma once
#include <atomic>

struct ncclComm;

namespace pm::fake_device {

/// Makes the communicator report that a remote process exited.
void break_nccl(ncclComm*);
/// The communicator that joined last in this process.
extern std::atomic<ncclComm*> last_joined;

}  // namespace pm::fake_device
