// SPDX-License-Identifier: Apache-2.0
// Runs ranks as threads, each with a fake device, that exchange tensors over the stand-in for NCCL.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <cstdlib>

#include "tests/unit/worker/comm/group.h"
#include "worker/comm/membership/device_communicator.h"

namespace pm::comm::test {

inline at::Device fake_device_at(int index) {
  static const int enough = setenv("PM_FAKE_DEVICES", "4", 1);  // read when the first device is looked for
  return {at::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index + enough)};
}

struct DeviceRanks {
  /// `share` puts all ranks on one device. Rank r is on device `first` + r otherwise.
  explicit DeviceRanks(int n, std::chrono::milliseconds deadline = 20s, bool share = false, int first = 0) {
    create_segment(segment.name, n, 64 << 10);
    for (int r = 0; r < n; ++r) {
      devices.push_back(fake_device_at(share ? 0 : first + r));
      ranks.push_back(device_communicator({.host = shared_memory(segment.name, r, n, deadline),
                                           .segment = Segment::open(segment.name, n),
                                           .device = devices.back(),
                                           .deadline = deadline}));
    }
  }
  /// Runs `body` once per rank, each in a thread on its device; returns what each threw.
  std::vector<std::exception_ptr> run(const std::function<void(Communicator&, at::Device)>& body) {
    std::vector<std::exception_ptr> thrown(ranks.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
      threads.emplace_back([&, r] {
        const c10::DeviceGuard here(devices[r]);
        try {
          body(*ranks[r], devices[r]);
        } catch (...) {
          thrown[r] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  /// Works as run(), for bodies that must not throw.
  void all(const std::function<void(Communicator&, at::Device)>& body) {
    for (const auto& error : run(body))
      if (error) std::rethrow_exception(error);
  }
  TestSegment segment;
  std::vector<at::Device> devices;
  std::vector<std::shared_ptr<Communicator>> ranks;
};

inline std::string words_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace pm::comm::test
