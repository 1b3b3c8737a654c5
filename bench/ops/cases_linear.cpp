// SPDX-License-Identifier: Apache-2.0
// Cases of linear layers: 1 to 32 rows (decode, bounded by reading the weights) and 512 rows (prefill, bounded by
// arithmetic). The large matrix is an MLP's of an 8B model.
#include <ATen/ATen.h>

#include "bench/ops/case.h"
#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::bench {

namespace {

constexpr double fp32_tolerance = 4e-6;
constexpr double matrix_unit_tolerance = 1e-4;  // tensor cores truncate where fp32 additions round
constexpr int64_t prefill_rows = 33;            // from here on arithmetic is taken to bound the time
constexpr int64_t cold_bytes = int64_t{256} << 20;

/// One matrix, and how many copies of it no cache holds at once.
struct Matrix {
  at::Tensor values;               ///< [out, in] as stored; of codes: dequantized fp32
  ops::QuantizedMatrix quantized;  ///< of codes only
  at::Tensor bias;                 ///< undefined: none
  int64_t copies = 1;
};

struct Shape {
  at::ScalarType type;  ///< kChar and kByte: codes of eight and four bits
  int64_t out, in;
  std::vector<int64_t> rows;
  bool has_bias = false, is_large = false;
  int64_t group = 32;               ///< of codes: inputs that share a scale
  int input_bits = 0;               ///< of codes: 8 rounds x, too
  bool scales_follow_rows = false;  ///< of codes: as the loader lays them out for Sharded and Offload
  at::ScalarType compute_type =
      at::kFloat;  ///< of codes: of the model's other parameters; devices may round weights to it
};

bool is_codes(at::ScalarType type) { return type == at::kChar || type == at::kByte; }

/// Returns the tolerance of codes on this CPU, which may round them and x to the type of the products, or x to integers
/// of 16 bits.
double tolerance_of_codes(at::ScalarType product) {
  if (product == at::kBFloat16 && ops::kernels().bf16_products) return rounding_error(product);
  return product != at::kFloat && ops::kernels().coded_products[0] ? rounding_error(at::kHalf) : fp32_tolerance;
}

Matrix random_matrix(const Shape& shape) {
  Matrix matrix;
  const at::Tensor values = at::randn({shape.out, shape.in});
  if (shape.has_bias) matrix.bias = at::randn({shape.out}).to(at::kBFloat16);
  if (is_codes(shape.type)) {
    const ops::CodeLayout layout{
        .group = shape.group, .bits = shape.type == at::kByte ? 4 : 8, .input_bits = shape.input_bits};
    matrix.quantized = ops::quantized(values, layout, shape.compute_type);
    if (shape.scales_follow_rows) {
      const at::Tensor rows =
          at::cat({matrix.quantized.codes.view(at::kByte), matrix.quantized.scales.view(at::kByte)}, 1).contiguous();
      matrix.quantized = ops::quantized_rows(rows, matrix.quantized.layout, shape.compute_type);
    }
    matrix.values = ops::dequantized(matrix.quantized);
  } else {
    matrix.values = values.to(shape.type);
  }
  const int64_t bytes = shape.out * shape.in * static_cast<int64_t>(c10::elementSize(shape.type));
  if (shape.is_large) matrix.copies = (cold_bytes + bytes - 1) / bytes;
  return matrix;
}

/// Returns one case for each number of rows; they share the matrix.
void add_cases(std::vector<Case>& cases, const Shape& shape) {
  const std::function<const Matrix&()> matrix = shared_value<Matrix>([shape] { return random_matrix(shape); });
  const bool codes = is_codes(shape.type);
  const ops::CodeLayout layout{shape.in, shape.group, shape.type == at::kByte ? 4 : 8};
  const at::ScalarType product = codes ? shape.compute_type : shape.type;
  const auto weight_bytes =
      static_cast<double>(codes ? shape.out * layout.row_bytes()
                                : shape.out * shape.in * static_cast<int64_t>(c10::elementSize(shape.type)));
  for (int64_t rows : shape.rows) {
    const bool prefill = rows >= prefill_rows;
    Case one{.name = std::string(type_name(shape.type)) + " [" + std::to_string(shape.out) + ", " +
                     std::to_string(shape.in) + "]" + (shape.has_bias ? " + bias" : "") +
                     (shape.scales_follow_rows ? ", scales in the rows" : "") +
                     (codes && product != at::kFloat ? std::string(" for ") + type_name(product) : "") +
                     (shape.input_bits > 0 ? ", x rounded" : "") + ", " + std::to_string(rows) +
                     (rows == 1 ? " row" : " rows"),
             .tolerance = codes ? tolerance_of_codes(product) : fp32_tolerance,
             .is_large = shape.is_large};
    if (prefill || product != at::kFloat)
      one.device_tolerance = codes && product != at::kFloat ? rounding_error(product) : matrix_unit_tolerance;
    if (prefill) {
      one.flops = 2. * static_cast<double>(rows * shape.out * shape.in);
    } else {
      one.bytes = weight_bytes + 4. * static_cast<double>(rows * (shape.in + shape.out));
    }
    one.make = [=]() -> Problem {
      const Matrix& given = matrix();
      // Devices may round x to the type of the products; these numbers are the same in both types.
      const at::Tensor x = at::randn({rows, shape.in}).to(product).to(at::kFloat);
      const auto expected = [=]() -> Outputs {
        const at::Tensor entering = shape.input_bits > 0 ? ops::rounded_inputs(x) : x;
        const at::Tensor y = at::mm(entering.to(at::kDouble), given.values.to(at::kDouble).t());
        return {given.bias.defined() ? y + given.bias.to(at::kDouble) : y};
      };
      const auto on = [=](at::Device device) -> Run {
        const at::Tensor there = x.to(device), bias = given.bias.defined() ? given.bias.to(device) : given.bias;
        const auto copies = static_cast<size_t>(given.copies);
        if (!codes) {
          std::vector<at::Tensor> weights{given.values.to(device)};
          while (weights.size() < copies) weights.push_back(weights[0].clone());
          return [=](const ops::Backend& backend, const Call& call) -> Outputs {
            return {backend.linear(there, weights[static_cast<size_t>(call.number) % copies], bias, at::kFloat)};
          };
        }
        const ops::QuantizedMatrix& q = given.quantized;
        std::vector<ops::QuantizedMatrix> weights{{q.codes.to(device), q.scales.to(device), q.layout, q.compute_type}};
        while (weights.size() < copies)
          weights.push_back({weights[0].codes.clone(), weights[0].scales.clone(), q.layout, q.compute_type});
        return [=](const ops::Backend& backend, const Call& call) -> Outputs {
          return {
              backend.quantized_linear(there, weights[static_cast<size_t>(call.number) % copies], bias, at::kFloat)};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  }
}

}  // namespace

std::vector<Case> linear_cases() {
  std::vector<Case> cases;
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    add_cases(cases, {.type = type, .out = 1000, .in = 1024, .rows = {1, 2, 3, 8, 32, 33, 128}});
    add_cases(cases, {.type = type, .out = 33, .in = 70, .rows = {1, 5, 40}, .has_bias = true});
    add_cases(cases, {.type = type, .out = 14336, .in = 4096, .rows = {1, 2, 3, 4, 8, 16, 32, 512}, .is_large = true});
  }
  return cases;
}

std::vector<Case> quantized_linear_cases() {
  std::vector<Case> cases;
  add_cases(cases, {.type = at::kChar, .out = 1000, .in = 1024, .rows = {1, 2, 3, 8, 32, 33, 128}});
  add_cases(cases, {.type = at::kChar, .out = 333, .in = 200, .rows = {1, 8, 40}, .has_bias = true, .group = 80});
  add_cases(cases, {.type = at::kChar, .out = 64, .in = 1024, .rows = {1, 8}, .scales_follow_rows = true});
  add_cases(cases, {.type = at::kChar, .out = 333, .in = 200, .rows = {1, 2, 8, 40}, .group = 200, .input_bits = 8});
  for (at::ScalarType compute_type : {at::kHalf, at::kBFloat16})
    add_cases(cases, {.type = at::kChar, .out = 333, .in = 224, .rows = {1, 4, 5, 40}, .compute_type = compute_type});
  for (at::ScalarType compute_type : {at::kFloat, at::kBFloat16})
    add_cases(cases, {.type = at::kChar,
                      .out = 14336,
                      .in = 4096,
                      .rows = {1, 2, 3, 4, 8, 16, 32, 512},
                      .is_large = true,
                      .compute_type = compute_type});
  add_cases(cases, {.type = at::kByte, .out = 1000, .in = 1024, .rows = {1, 2, 3, 8, 32, 33, 128}});
  add_cases(cases, {.type = at::kByte, .out = 333, .in = 200, .rows = {1, 8, 40}, .has_bias = true});
  add_cases(cases, {.type = at::kByte, .out = 64, .in = 1024, .rows = {1, 8}, .scales_follow_rows = true});
  add_cases(cases,
            {.type = at::kByte, .out = 14336, .in = 4096, .rows = {1, 2, 3, 4, 8, 16, 32, 512}, .is_large = true});
  return cases;
}

}  // namespace pm::bench
