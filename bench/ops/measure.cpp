// SPDX-License-Identifier: Apache-2.0
#include "bench/ops/measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "worker/ops/stream.h"

namespace pm::bench {

namespace {

constexpr double round_seconds = 0.01;  // enough calls that the clock and one wait for the device do not count
constexpr double case_seconds = 2;      // then two rounds have to do
constexpr double infinity = std::numeric_limits<double>::infinity();

void wait_for(at::Device device) {
  if (!device.is_cpu()) ops::current_stream(device).synchronize();
}

/// Returns the seconds of `calls` calls.
double seconds(const Run& run, const ops::Backend& backend, at::Device device, int64_t calls) {
  wait_for(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) run(backend, {.number = i});
  wait_for(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string shape(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

double largest_error(const Outputs& got, const Outputs& expected) {
  if (got.size() != expected.size())
    throw std::runtime_error("returned " + std::to_string(got.size()) + " tensors instead of " +
                             std::to_string(expected.size()));
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].sizes() != expected[i].sizes())
      throw std::runtime_error("result " + std::to_string(i) + " is " + shape(got[i]) + " instead of " +
                               shape(expected[i]));
    const at::Tensor wanted = expected[i].to(at::kDouble),
                     difference = (got[i].to(at::kCPU).to(at::kDouble) - wanted).abs();
    if (!at::isfinite(difference).all().item<bool>()) return infinity;
    const double size = wanted.abs().max().item<double>(), error = difference.max().item<double>();
    largest = std::max(largest, size > 0 ? error / size : error);
  }
  return largest;
}

std::vector<double> fastest_calls(const Run& run, std::span<const ops::Backend* const> backends, at::Device device,
                                  int rounds) {
  std::vector<int64_t> calls(backends.size(), 1);
  std::vector<double> fastest(backends.size(), infinity);
  double spent = 0;
  for (size_t i = 0; i < backends.size(); ++i) {
    seconds(run, *backends[i], device, 1);  // the first call allocates
    for (double time = seconds(run, *backends[i], device, 1); time < round_seconds;
         time = seconds(run, *backends[i], device, calls[i]))
      calls[i] *= std::clamp<int64_t>(static_cast<int64_t>(round_seconds / time), 2, 16);
  }
  for (int round = 0; round < rounds && (round < 2 || spent < case_seconds); ++round) {
    for (size_t i = 0; i < backends.size(); ++i) {
      const double time = seconds(run, *backends[i], device, calls[i]);
      fastest[i] = std::min(fastest[i], time / static_cast<double>(calls[i]));
      spent += time;
    }
  }
  return fastest;
}

}  // namespace pm::bench
