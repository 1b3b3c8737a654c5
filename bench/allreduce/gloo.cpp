// SPDX-License-Identifier: Apache-2.0
// Implements the Gloo all_reduce in a file of its own because its headers take long to compile.
#include "bench/allreduce/gloo.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>

std::function<void(at::Tensor&)> gloo_all_reduce(int rank, int size, unsigned short port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = rank == 0;
  options.numWorkers = size;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto gloo = c10d::ProcessGroupGloo::Options::create();
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  gloo->timeout = std::chrono::seconds(60);
  const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("bench", store),
                                                                 rank, size, gloo);
  return [group](at::Tensor& tensor) {
    std::vector<at::Tensor> tensors{tensor};
    group->allreduce(tensors)->wait();
  };
}
