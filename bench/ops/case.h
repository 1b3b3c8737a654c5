// SPDX-License-Identifier: Apache-2.0
// One case of an operation: its inputs, its result in fp64, and what a call moves or computes. The files cases_*.cpp
// hold them, a function for each operation.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/ops/backend.h"

namespace pm::bench {

using Outputs = std::vector<at::Tensor>;

/// How an operation is called.
struct Call {
  int64_t number = 0;        ///< calls take turns over copies of large inputs, so that no cache holds them
  bool keep_inputs = false;  ///< true: an operation that writes to its inputs gets copies of them
};

/// Calls an operation of a backend once, on inputs of one device. Returns no outputs if the backend does not have it.
using Run = std::function<Outputs(const ops::Backend&, const Call&)>;

struct Problem {
  std::function<Outputs()> expected;  ///< in fp64 or int64, on the host
  std::function<Run(at::Device)> on;  ///< copies the inputs to a device
};

struct Case {
  std::string name;
  std::function<Problem()> make;  ///< draws the inputs from ATen's random numbers
  double tolerance = 0;           ///< largest |result - expected|, divided by the largest |expected|
  /// Of devices other than the CPU, where it is another one: matrix units round sums or inputs to 16 bits.
  std::optional<double> device_tolerance = {};
  double bytes = 0, flops = 0;  ///< moved or computed by one call; the one that bounds its time, the other is 0
  bool is_large = false;        ///< as large as in a 7-8B model; not part of --check-only
};

/// Returns a function that calls `make` at its first call and returns the same value at each. Cases share large inputs
/// by it; the value is released with the last case.
template <typename T>
std::function<const T&()> shared_value(std::function<T()> make) {
  return [value = std::make_shared<std::optional<T>>(), make = std::move(make)]() -> const T& {
    if (!value->has_value()) value->emplace(make());
    return **value;
  };
}

/// Returns "F32", "F16", "BF16" or "I8".
const char* type_name(at::ScalarType type);
/// Returns the largest relative error of rounding to `type`; 0 for F32.
double rounding_error(at::ScalarType type);

std::vector<Case> linear_cases();
std::vector<Case> quantized_linear_cases();
std::vector<Case> layer_norm_cases();
std::vector<Case> rms_norm_cases();
std::vector<Case> fused_add_layer_norm_cases();
std::vector<Case> fused_add_rms_norm_cases();
std::vector<Case> silu_and_mul_cases();
std::vector<Case> rotary_angles_cases();
std::vector<Case> rotate_cases();
std::vector<Case> write_kv_cases();
std::vector<Case> rotary_write_cases();
std::vector<Case> ragged_attention_cases();
std::vector<Case> add_relative_content_cases();
std::vector<Case> paged_attention_cases();
std::vector<Case> sample_cases();
std::vector<Case> best_scores_cases();

/// An operation of ops::Backend and its cases.
struct Operation {
  const char* name;
  std::vector<Case> (*cases)();
};
inline constexpr Operation operations[] = {
    {"linear", linear_cases},
    {"quantized_linear", quantized_linear_cases},
    {"layer_norm", layer_norm_cases},
    {"rms_norm", rms_norm_cases},
    {"fused_add_layer_norm", fused_add_layer_norm_cases},
    {"fused_add_rms_norm", fused_add_rms_norm_cases},
    {"silu_and_mul", silu_and_mul_cases},
    {"rotary_angles", rotary_angles_cases},
    {"rotate", rotate_cases},
    {"write_kv", write_kv_cases},
    {"rotary_write", rotary_write_cases},
    {"ragged_attention", ragged_attention_cases},
    {"add_relative_content", add_relative_content_cases},
    {"paged_attention", paged_attention_cases},
    {"sample", sample_cases},
    {"best_scores", best_scores_cases},
};

}  // namespace pm::bench
