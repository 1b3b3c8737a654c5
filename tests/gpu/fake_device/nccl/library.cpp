// SPDX-License-Identifier: Apache-2.0
// A substitute for NCCL, with the calls that the worker makes, between processes or threads of one host, for fake
// devices. It behaves like NCCL: joining continues after the call returns. Operations wait in the stream, also for
// ranks that never come. Ranks that call different operations hang or get wrong bytes. An abort ends only the caller's
// side. Two ranks on one device are refused. Ranks share a file with the rank table and a ring from each rank to each
// other.
#include <nccl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/graphs.h"
#include "tests/gpu/fake_device/nccl/fault_injection.h"
#include "tests/gpu/fake_device/streams.h"
#include "worker/comm/shared_memory/ring.h"
#include "worker/comm/shared_memory/shm_file.h"

namespace {

using namespace pm::comm;

constexpr int max_ranks = 4;
constexpr int64_t device_bytes = 6 << 20;  // taken by a communicator
constexpr size_t ring_bytes = 64 << 10, piece = 16 << 10;

struct Shared {
  struct Pair {
    RingState state;
    std::byte data[ring_bytes];
  };
  std::atomic<uint64_t> here[max_ranks];  ///< device of each rank that has joined; 0: not yet
  Pair pairs[max_ranks][max_ranks];
};

/// Returns a name of the calling thread's device. NCCL_HOSTID lets ranks of one host count as ranks of several, as it
/// does for NCCL.
uint64_t device_now() {
  const char* host = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>()(host ? host : "") << 8 |
         (1 + static_cast<uint64_t>(pm::fake_device::current_device()));
}

}  // namespace

struct ncclComm {
  ncclComm(const std::string& name, int rank, int size)
      : file(ShmFile::open(name)), name(name), rank(rank), size(size) {}
  Shared& shared() { return *std::launder(reinterpret_cast<Shared*>(file.bytes().data())); }
  Ring ring(int from, int to, const char* op) {
    Shared::Pair& pair = shared().pairs[from][to];
    return Ring(pair.state, pair.data, ended, {op, rank, from == rank ? to : from}, std::chrono::hours(24),
                [](const std::string&) {});
  }
  void send(const void* data, size_t bytes, int to) {
    ring(rank, to, "send").write({static_cast<const std::byte*>(data), bytes});
  }
  void recv(void* data, size_t bytes, int from) {
    ring(from, rank, "recv").read({static_cast<std::byte*>(data), bytes});
  }
  void end() {
    ended.write("aborted");
    for (auto& row : shared().pairs)
      for (Shared::Pair& pair : row) notify_all(pair.state.reader), notify_all(pair.state.writer);
  }

  ShmFile file;
  const std::string name;
  const int rank, size;
  int device = 0;
  AbortNote ended;  ///< abort of this rank alone
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<int> queued{0}, under_way{0};
  std::thread joining;
  std::shared_ptr<int> graphs = std::make_shared<int>();  ///< use count of captured operations
  std::shared_ptr<ncclComm> self;                         ///< reset on destruction; pending stream work holds it, too
};

namespace {

thread_local int depth = 0;
struct Work {
  ncclComm_t comm;
  cudaStream_t stream;
  std::function<void()> run;
};
thread_local std::vector<Work> group;

void start(const std::vector<Work>& all) {
  for (const Work& one : all) ++one.comm->queued;
  pm::fake_device::Streams::instance().put(*reinterpret_cast<c10::Stream*>(all.front().stream), [all] {
    for (const Work& one : all) one.run();
  });
}

/// A captured operation is only stored, whatever other ranks do; its replay keeps the order of capture.
void start_or_record(const std::vector<Work>& all) {
  if (!pm::fake_device::capture) return start(all);
  std::vector<std::shared_ptr<int>> held;
  for (const Work& one : all) held.push_back(one.comm->graphs);
  pm::fake_device::capture->add([all, held] {
    start(all);
    pm::fake_device::Streams::instance().finish(*reinterpret_cast<c10::Stream*>(all.front().stream));
  });
}

void put(ncclComm_t comm, cudaStream_t stream, std::function<void()> work) {
  auto guarded = [comm = comm->self, work = std::move(work)] {
    ++comm->under_way;
    try {
      if (!comm->ended.aborted()) work();
    } catch (const std::exception&) {  // aborted: the result is not used
    }
    --comm->queued;
    --comm->under_way;
  };
  Work one{comm, stream, std::move(guarded)};
  if (depth > 0)
    group.push_back(std::move(one));
  else
    start_or_record({std::move(one)});
}

ncclResult_t usable(ncclComm_t comm) {
  pm::fake_device::use_runtime();
  if (comm->state != ncclSuccess) return comm->state == ncclInProgress ? ncclInvalidUsage : comm->state.load();
  return ncclSuccess;
}

template <typename T>
T* host(T* device) {
  return static_cast<T*>(pm::fake_device::host_address(device));
}

/// Sends every rank's bytes to every rank; `use` gets those of each rank in order, piece by piece.
template <class Use>
void exchange(ncclComm_t comm, const std::byte* mine, size_t bytes, Use&& use) {
  std::vector<std::byte> others(piece);
  for (size_t at = 0; at < bytes; at += piece) {
    const size_t count = std::min(piece, bytes - at);
    const std::vector<std::byte> own(mine + at, mine + at + count);
    for (int peer = 0; peer < comm->size; ++peer)
      if (peer != comm->rank) comm->send(own.data(), count, peer);
    for (int peer = 0; peer < comm->size; ++peer) {
      if (peer != comm->rank) comm->recv(others.data(), count, peer);
      use(peer, at, count, peer == comm->rank ? own.data() : others.data());
    }
  }
}

}  // namespace

namespace pm::fake_device {

void break_nccl(ncclComm* comm) { comm->state = ncclRemoteError; }
std::atomic<ncclComm*> last_joined{nullptr};

}  // namespace pm::fake_device

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return ncclSystemError;
  const std::string name = "parallelmodel-fake-nccl-" + std::to_string(getpid()) + "-" + std::to_string(number);
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, name.data(), name.size());
  ShmFile::create(name, sizeof(Shared));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || ranks > max_ranks) return ncclInvalidArgument;
  const auto made = std::make_shared<ncclComm>(id.internal, rank, ranks);
  ncclComm_t comm = *out = made.get();
  comm->self = made;
  pm::fake_device::use_device();
  comm->device = pm::fake_device::current_device();
  pm::fake_device::take_outside_allocator(comm->device, device_bytes);
  comm->joining = std::thread([comm, device = device_now()] {
    Shared& shared = comm->shared();
    shared.here[comm->rank] = device;
    for (int peer = 0; peer < comm->size && !comm->ended.aborted();) {
      if (shared.here[peer] == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      else if (peer != comm->rank && shared.here[peer] == device)
        comm->state = ncclInvalidUsage, peer = comm->size;
      else
        ++peer;
    }
    ShmFile::remove(comm->name);  // all ranks have it open
    ncclResult_t joining = ncclInProgress;
    pm::fake_device::last_joined = comm;
    if (!comm->ended.aborted()) comm->state.compare_exchange_strong(joining, ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  comm->state = ncclInProgress;
  comm->joining.join();
  comm->joining = std::thread([comm] {
    while (comm->queued != 0 && !comm->ended.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  pm::fake_device::use_runtime();  // NCCL selects the device of the communicator, and then the device before
  comm->end();
  comm->joining.join();
  while (comm->under_way != 0 || comm->graphs.use_count() > 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // NCCL also waits for graphs that hold its operations
  pm::fake_device::take_outside_allocator(comm->device, -device_bytes);
  const std::shared_ptr<ncclComm> last = std::move(comm->self);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return ncclCommAbort(comm); }

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0 || group.empty()) return ncclSuccess;
  auto all = std::move(group);
  group.clear();
  start_or_record(all);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32) return ncclInvalidArgument;
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  put(comm, stream, [=] {
    auto* out = reinterpret_cast<std::byte*>(host(static_cast<float*>(to)));
    exchange(comm, reinterpret_cast<const std::byte*>(host(static_cast<const float*>(from))), count * sizeof(float),
             [&](int peer, size_t at, size_t bytes, const std::byte* theirs) {
               const auto* values = reinterpret_cast<const float*>(theirs);
               auto* sums = reinterpret_cast<float*>(out + at);
               for (size_t i = 0; i < bytes / sizeof(float); ++i)
                 sums[i] = peer == 0 ? values[i] : op == ncclSum ? sums[i] + values[i] : std::fmax(sums[i], values[i]);
             });
  });
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  put(comm, stream, [=] {
    auto* out = static_cast<std::byte*>(host(to));
    exchange(comm, static_cast<const std::byte*>(host(from)), count,
             [&](int peer, size_t at, size_t bytes, const std::byte* theirs) {
               std::memcpy(out + static_cast<size_t>(peer) * count + at, theirs, bytes);
             });
  });
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  put(comm, stream, [=] {
    if (comm->rank != root) return comm->recv(host(to), count, root);
    for (int peer = 0; peer < comm->size; ++peer)
      if (peer != root) comm->send(host(from), count, peer);
    std::memmove(host(to), host(from), count);
  });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  put(comm, stream, [=] { comm->send(host(from), count, peer); });
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t result = usable(comm); result != ncclSuccess) return result;
  put(comm, stream, [=] { comm->recv(host(to), count, peer); });
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* words[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return words[result];
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm->state == ncclInvalidUsage ? "Duplicate GPU detected" : "";
}

}  // extern "C"
