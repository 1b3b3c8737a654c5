// What a layer holds of a parameter: a tensor that is there, or a handle to one that comes together when it is used. Layers do not know which.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "worker/ops/int8.h"
#include "worker/policy/model.h"

namespace pm::layers {

class Weight;

/// Brings weights together that no rank holds whole (worker/parallel/units.h). Throws as Communicator and Checkpoint do.
class Gatherer {
 public:
  virtual ~Gatherer() = default;
  /// Calls `use` with rows of the matrix (elements of a vector), tile by tile from the first on; a tile is there until `use` returns.
  virtual void tiles(int weight, const std::function<void(int64_t first, const Weight& rows)>& use) = 0;
  /// Rows of a table: ids [count] int64 -> [count, width] in the type in which it is held; of int8 fp32.
  virtual at::Tensor look_up(int weight, const at::Tensor& ids) = 0;
};

/// Empty: the model has no such parameter.
class Weight {
 public:
  Weight() = default;
  explicit Weight(at::Tensor held) : held_(std::move(held)) {}
  explicit Weight(ops::Int8Matrix held) : held_(std::move(held.numbers)), scales_(std::move(held.scales)), group_(held.group) {}
  Weight(Gatherer& gatherer, int number, std::vector<int64_t> shape, at::ScalarType type) : gatherer_(&gatherer), number_(number), shape_(std::move(shape)), type_(type) {}

  bool defined() const { return gatherer_ || held_.defined(); }
  bool held() const { return !gatherer_; }
  int64_t size(int64_t dimension) const { return gatherer_ ? shape_.at(static_cast<size_t>(dimension)) : held_.size(dimension); }
  at::ScalarType scalar_type() const { return gatherer_ ? type_ : held_.scalar_type(); }

  /// x [tokens, in] W^T + bias -> [tokens, out] fp32; the matrix comes by as often as this is called.
  at::Tensor linear(const at::Tensor& x, const at::Tensor& bias = {}) const;
  /// Rows of the table, in the type in which it is held; of int8 fp32.
  at::Tensor look_up(const at::Tensor& ids) const;
  /// A tensor that stays: the one that is there, or a copy, of int8 fp32. For vectors and small tables.
  at::Tensor value() const;

 private:
  at::Tensor held_, scales_;   ///< scales: of int8
  int64_t group_ = 0;
  Gatherer* gatherer_ = nullptr;
  int number_ = -1;
  std::vector<int64_t> shape_;
  at::ScalarType type_ = at::kFloat;
};

/// How a layer uses a weight.
enum class Access : uint8_t { Product, LookUp };

/// Decides which weights a rank does not hold whole. Asked in the order in which a pass uses them, each time one is used.
class Keeper {
 public:
  virtual ~Keeper() = default;
  /// The handle to these parameters below each other; nothing for those that the rank holds.
  virtual std::optional<Weight> keep(std::span<const policy::Param* const>, Access) = 0;
};

}  // namespace pm::layers
