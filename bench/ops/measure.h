// SPDX-License-Identifier: Apache-2.0
// Errors and times of the calls of a case.
#pragma once
#include <span>

#include "bench/ops/case.h"

namespace pm::bench {

/// Returns the largest |got - expected| of all outputs, each divided by the largest |expected| of its output; infinity
/// where a result is not finite. Throws std::runtime_error when number or shapes of the outputs differ.
double largest_error(const Outputs& got, const Outputs& expected);

/// Returns the seconds of one call of each backend: the fastest round of each. The backends take turns, so that other
/// load of the machine meets all of them.
std::vector<double> fastest_calls(const Run& run, std::span<const ops::Backend* const> backends, at::Device device,
                                  int rounds);

}  // namespace pm::bench
