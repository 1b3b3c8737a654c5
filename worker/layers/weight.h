// SPDX-License-Identifier: Apache-2.0
// A layer's handle of a parameter: a resident tensor, or a sharded one that is all-gathered when it is used. Layers
// need not know which.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "worker/ops/quantized_matrix.h"
#include "worker/policy/spec/param.h"

namespace pm::layers {

class Weight;

/// All-gathers weights that no rank holds in full (worker/parallel/gather_units.h). Throws as Communicator and
/// Checkpoint do.
class WeightGatherer {
 public:
  virtual ~WeightGatherer() = default;
  /// Calls `use` with rows of the matrix (elements of a vector), tile by tile in order. A tile is valid until `use`
  /// returns.
  virtual void tiles(int weight, const std::function<void(int64_t first, const Weight& rows)>& use) = 0;
  /// Looks up rows of a table: ids [count] int64 -> [count, width] in the type in which it is held, F32 for codes.
  virtual at::Tensor look_up(int weight, const at::Tensor& ids) = 0;
};

/// A parameter as layers use it. An empty one means that the model has no such parameter.
class Weight {
 public:
  Weight() = default;
  /// An undefined tensor makes an empty weight.
  explicit Weight(at::Tensor tensor) {
    if (tensor.defined()) form_ = Resident{std::move(tensor)};
  }
  explicit Weight(ops::QuantizedMatrix matrix) : form_(Quantized{std::move(matrix)}) {}
  /// Makes the handle of weight `number` of the gatherer, which must outlive it.
  Weight(WeightGatherer& gatherer, int number, std::vector<int64_t> shape)
      : form_(Gathered{&gatherer, number, std::move(shape)}) {}

  bool defined() const { return !std::holds_alternative<std::monostate>(form_); }
  bool is_gathered() const { return std::holds_alternative<Gathered>(form_); }
  /// Returns the size of a dimension. Throws std::logic_error if the weight is empty, as linear() and look_up() do.
  int64_t size(int64_t dimension) const;

  /// Returns x [tokens, in] W^T + bias -> [tokens, out], rounded once to `result`. A sharded matrix is gathered at each
  /// call.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& bias = {}, at::ScalarType result = at::kFloat) const;
  /// Looks up rows of the table, in the type in which it is held, F32 for codes.
  at::Tensor look_up(const at::Tensor& ids) const;
  /// Returns the resident tensor, or a gathered copy (F32 for codes); undefined if the weight is empty. It is meant for
  /// vectors and small tables.
  at::Tensor value() const;
  /// Calls `use` with all rows in order: with the resident tensor at once, with a gathered one tile by tile.
  void tiles(const std::function<void(int64_t first, const at::Tensor& rows)>& use) const;

 private:
  struct Resident {
    at::Tensor tensor;
  };
  struct Quantized {
    ops::QuantizedMatrix matrix;
  };
  struct Gathered {
    WeightGatherer* gatherer;
    int number;  ///< of the weight among those of the gatherer
    std::vector<int64_t> shape;
    at::Tensor linear(const at::Tensor& x, const at::Tensor& bias, at::ScalarType result) const;
    at::Tensor value() const;
  };
  std::variant<std::monostate, Resident, Quantized, Gathered> form_;
};

/// How a layer uses a weight.
enum class Access : uint8_t { Product, LookUp };

/// Decides which weights are sharded over ranks. It is called once for each use of a weight, in the order of the
/// forward pass.
class WeightSharder {
 public:
  virtual ~WeightSharder() = default;
  /// Returns the handle to these stacked parameters, or nothing when the rank holds them.
  virtual std::optional<Weight> keep(std::span<const policy::Param* const>, Access) = 0;
};

}  // namespace pm::layers
