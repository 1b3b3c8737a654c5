// SPDX-License-Identifier: Apache-2.0
// The subset of NCCL that the worker uses, for fake devices: its names and types, so that worker/comm/nccl compiles
// against this header as it does against NCCL's own (preset cuda). The library behind it (library.cpp) moves bytes of
// fake devices between processes of one host.
#pragma once
#include <cstddef>

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's
extern "C" {

using cudaStream_t = struct CUstream_st*;  // a c10::Stream, by pm::fake_device::Streams::handle()
using ncclComm_t = struct ncclComm*;

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclInt8 = 0, ncclFloat32 = 7 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER {1}

ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void*, void*, size_t count, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
}
// NOLINTEND(readability-identifier-naming)
