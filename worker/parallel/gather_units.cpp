// SPDX-License-Identifier: Apache-2.0
#include "worker/parallel/gather_units.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "planner/weight_shards.h"
#include "worker/policy/roles.h"

namespace pm::parallel {

using policy::Param;

namespace {

bool is_table(const Param& param) {
  const Axis axis = policy::sharding_rule(param.role).axis;
  return axis == Axis::Vocab || axis == Axis::Positions;
}

/// Returns true for sharded parameters of a layer, which lie in its flat parameter.
bool in_flat_param(const Param& param) {
  return param.layer >= 0 && policy::sharding_rule(param.role).axis != Axis::None && !is_table(param);
}

std::string storage_of(std::span<const Param* const> params) {
  std::string storage;
  for (const Param* param : params) storage += (param->shares.empty() ? param->path : param->shares) + "\n";
  return storage;
}

}  // namespace

GatherUnits::GatherUnits(const policy::Model& model, const Plan& plan, int rank)
    : gathering_(plan.gathering.value()),
      precision_(plan.precision),
      compute_(compute_type(model.metadata, plan.precision)),
      rank_(rank),
      ranks_(static_cast<int>(plan.ranks.size())),
      stacks_(model.stacks.size()),
      uses_(stacks_ + 1) {
  for (size_t i = 0; i < stacks_; ++i) stack_numbers_[model.stacks[i].name] = i;
  const std::vector<const Param*> params = model.params();
  for (const Param* param : params) owners_[param->path] = param;
  for (const Param* param : params) {
    if (param->shares.empty()) continue;
    const Param& first = owner(*param);
    if (param->stack != first.stack || param->layer != first.layer) shared_.insert(first.path);
  }
  for (const Param* param : params) {
    if (param->shares.empty() && in_flat_param(*param) && !shared_.contains(param->path))
      with_own_.insert({param->stack, param->layer});
  }
}

const Param& GatherUnits::owner(const Param& param) const {
  return param.shares.empty() ? param : *owners_.at(param.shares);
}

/// Returns true for parameters that every rank holds whole, as planner/weight_shards.h defines them.
bool GatherUnits::is_replicated(const Param& owner) const {
  if (is_table(owner)) return false;
  return !in_flat_param(owner) || (shared_.contains(owner.path) && with_own_.contains({owner.stack, owner.layer}));
}

std::optional<layers::Weight> GatherUnits::keep(std::span<const Param* const> params, layers::Access access) {
  const Param& first = owner(*params[0]);
  for (const Param* param : params) {
    if (is_replicated(owner(*param)) != is_replicated(first))
      throw std::logic_error(param->path + " and " + params[0]->path +
                             " are stacked in one weight, but only one of them is sharded");
  }
  if (is_replicated(first)) return std::nullopt;
  const std::string storage = storage_of(params);
  const auto [known, fresh] = known_.try_emplace(storage, static_cast<int>(weights_.size()));
  if (fresh) {
    ShardedWeight& weight = weights_.emplace_back();
    weight.params.assign(params.begin(), params.end());
    weight.flat_param = flat_param_of(first, storage);
    weight.shape = params[0]->shape;
    for (const Param* param : params.subspan(1)) weight.shape[0] += param->shape[0];
    if (policy::code_bits(*params[0], precision_) > 0)
      weight.codes = layers::code_layout(*params[0], weight.shape[1], precision_);
    weight.type =
        weight.codes ? weight.codes->code_type() : layers::scalar_type(params[0]->keep ? params[0]->dtype : compute_);
    flat_params_[weight.flat_param].weights.push_back(known->second);
  }
  const auto stack = stack_numbers_.find(params[0]->stack);
  uses_[stack == stack_numbers_.end() ? stacks_ : stack->second].push_back(
      {known->second, access == layers::Access::LookUp});
  const ShardedWeight& weight = weights_[static_cast<size_t>(known->second)];
  return layers::Weight(*gatherer_, known->second, weight.shape);
}

/// Returns the flat parameter of a weight: each table has its own, and a layer has one for all its sharded weights.
size_t GatherUnits::flat_param_of(const Param& owner, const std::string& storage) {
  const std::string name = is_table(owner) ? "\n" + storage : owner.stack + "/" + std::to_string(owner.layer);
  const auto [found, fresh] = flat_param_numbers_.try_emplace(name, flat_params_.size());
  if (fresh) flat_params_.push_back({is_table(owner), {}, 0, {}, {}});
  return found->second;
}

void GatherUnits::load(layers::Loader& loader) {
  lay_out();
  split_into_units();
  for (size_t number = 0; number < flat_params_.size(); ++number) {
    FlatParam& flat_param = flat_params_[number];
    const int64_t row = flat_param.table ? weight(flat_param.weights[0]).row_bytes : 1;
    flat_param.shard_range = flat_param.table ? table_shard(weight(flat_param.weights[0]).shape[0], rank_, ranks_)
                                              : flat_param_shard(flat_param.bytes, rank_, ranks_);
    if (!in_files())
      flat_param.local_shard =
          part_in_memory(loader, number, flat_param.shard_range.begin * row, flat_param.shard_range.end * row);
  }
}

/// Returns bytes [begin, end) of a flat parameter where this rank holds them: on its device, or in pinned host memory,
/// from where copies to the device overlap with its work.
at::Tensor GatherUnits::part_in_memory(layers::Loader& loader, size_t flat_param, int64_t begin, int64_t end) const {
  const bool on_host = gathering_.from == Residency::HostMemory && !loader.device().is_cpu();
  at::Tensor shard = on_host ? ops::pinned(end - begin) : loader.allocate({end - begin}, at::kByte);
  if (shard.is_cpu()) {
    read(loader, flat_param, begin, end, static_cast<std::byte*>(shard.mutable_data_ptr()));
    return shard;
  }
  for (int64_t at = begin; at < end; at += ops::Staging::buffer_bytes) {
    const int64_t bytes = std::min(ops::Staging::buffer_bytes, end - at);
    loader.put(shard.narrow(0, at - begin, bytes), at::kByte,
               [&](std::span<std::byte> out) { read(loader, flat_param, at, at + bytes, out.data()); });
  }
  return shard;
}

at::Tensor GatherUnits::local_rows(int number) const {
  const ShardedWeight& table = weight(number);
  const FlatParam& flat_param = flat_params_[table.flat_param];
  return flat_param.local_shard.view({flat_param.shard_range.size(), table.row_bytes});
}

layers::Weight GatherUnits::view_rows(int number, const at::Tensor& bytes) const {
  const ShardedWeight& weight = this->weight(number);
  std::vector<int64_t> shape = weight.shape;
  shape[0] = bytes.numel() / weight.row_bytes;
  if (weight.codes)
    return layers::Weight(
        ops::quantized_rows(bytes.view({shape[0], weight.row_bytes}), *weight.codes, layers::scalar_type(compute_)));
  return layers::Weight(bytes.view({-1}).view(weight.type).view(shape));
}

void GatherUnits::read_rows(layers::Loader& loader, int number, Range rows, std::byte* out) const {
  const ShardedWeight& weight = this->weight(number);
  if (weight.codes) return loader.read_quantized(weight.params, rows, out);
  std::vector<int64_t> shape = weight.shape;
  shape[0] = rows.size();
  loader.read(weight.params, rows, at::from_blob(out, shape, at::TensorOptions(weight.type)));
}

/// Assigns each weight its offset in its flat parameter.
void GatherUnits::lay_out() {
  for (ShardedWeight& weight : weights_) {
    const auto element = static_cast<int64_t>(c10::elementSize(weight.type));
    weight.row_bytes =
        weight.codes ? weight.codes->row_bytes()
                     : std::accumulate(weight.shape.begin() + 1, weight.shape.end(), element, std::multiplies<>());
    weight.bytes = weight.shape[0] * weight.row_bytes;
  }
  for (FlatParam& flat_param : flat_params_) {
    std::stable_sort(flat_param.weights.begin(), flat_param.weights.end(),
                     [&](int a, int b) { return c10::elementSize(weight(a).type) > c10::elementSize(weight(b).type); });
    for (const int number : flat_param.weights) {
      weights_[static_cast<size_t>(number)].offset = flat_param.bytes;
      flat_param.bytes += weight(number).bytes;
    }
  }
}

void GatherUnits::split_into_units() {
  for (size_t number = 0; number < flat_params_.size(); ++number) {
    const FlatParam& flat_param = flat_params_[number];
    const bool whole = flat_param.bytes <= gathering_.buffer;
    for (const int weight : flat_param.weights) {
      if (whole)
        weights_[static_cast<size_t>(weight)].units = {static_cast<int>(units_.size())};
      else
        split_into_units(weight);
    }
    if (whole) units_.push_back({number, 0, flat_param.bytes});
  }
}

/// Splits a matrix that shares no unit with others into units of as many rows as fit a buffer.
void GatherUnits::split_into_units(int number) {
  ShardedWeight& weight = weights_[static_cast<size_t>(number)];
  const int64_t fit = gathering_.buffer / weight.row_bytes;
  if (fit < 1) {
    throw std::logic_error("a row of " + weight.params[0]->path + " has " + std::to_string(weight.row_bytes) +
                           " bytes, but a gather buffer of the plan has " + std::to_string(gathering_.buffer));
  }
  for (int64_t row = 0; row < weight.shape[0]; row += fit) {
    weight.units.push_back(static_cast<int>(units_.size()));
    units_.push_back({weight.flat_param, weight.offset + row * weight.row_bytes,
                      weight.offset + std::min(row + fit, weight.shape[0]) * weight.row_bytes});
  }
}

std::vector<GatherOp> GatherUnits::schedule(StageMask mask) const {
  std::vector<GatherOp> gather_ops;
  const auto add = [&](const std::vector<Use>& uses) {
    for (const auto& [number, look_up] : uses) {
      if (look_up) gather_ops.push_back({true, number});
      for (const int unit : look_up ? std::vector<int>{} : weight(number).units) {
        if (gather_ops.empty() || gather_ops.back() != GatherOp{false, unit})
          gather_ops.push_back({false, unit});  // a unit that is present is not gathered again
      }
    }
  };
  for (size_t stack = 0; stack < stacks_; ++stack) {
    if (mask & stack_mask(stack)) add(uses_[stack]);
  }
  for (const StageMask head : {argmax_mask(), logits_mask()}) {
    if (mask & head) add(uses_[stacks_]);
  }
  for (StageMask more = mask >> repeats_shift; more > 0; --more) add(uses_[stacks_]);
  return gather_ops;
}

StageMask GatherUnits::logits_mask(int64_t times) const {
  if (times < 1 || times > (int64_t{1} << (64 - repeats_shift)))
    throw std::logic_error("a step computes logits " + std::to_string(times) + " times");
  return StageMask{1} << (stacks_ + 1) | static_cast<StageMask>(times - 1) << repeats_shift;
}

Range GatherUnits::part_of(int number, int rank) const {
  const GatherUnit& unit = this->unit(number);
  const FlatParam& flat_param = flat_params_[unit.flat_param];
  if (in_files()) return flat_param_shard(unit.end - unit.begin, rank, ranks_);
  Range part = flat_param.table ? table_shard(weight(flat_param.weights[0]).shape[0], rank, ranks_)
                                : flat_param_shard(flat_param.bytes, rank, ranks_);
  const int64_t row = flat_param.table ? weight(flat_param.weights[0]).row_bytes : 1;
  const int64_t begin = std::clamp(part.begin * row, unit.begin, unit.end),
                end = std::clamp(part.end * row, begin, unit.end);
  return {begin - unit.begin, end - unit.begin};
}

void GatherUnits::read(layers::Loader& loader, size_t flat_param, int64_t begin, int64_t end, std::byte* out) const {
  std::vector<std::byte> row;  // a row of which only a part is needed
  for (const int number : flat_params_[flat_param].weights) {
    const ShardedWeight& weight = this->weight(number);
    int64_t at = std::max(begin, weight.offset) - weight.offset;
    const int64_t last = std::min(end, weight.offset + weight.bytes) - weight.offset;
    while (at < last) {
      const int64_t first = at / weight.row_bytes, inside = at % weight.row_bytes,
                    rows = inside > 0 ? 0 : (last - at) / weight.row_bytes;
      std::byte* to = out + weight.offset + at - begin;
      if (rows > 0) {
        read_rows(loader, number, {first, first + rows}, to);
        at += rows * weight.row_bytes;
        continue;
      }
      row.resize(static_cast<size_t>(weight.row_bytes));
      read_rows(loader, number, {first, first + 1}, row.data());
      const int64_t bytes = std::min(last - at, weight.row_bytes - inside);
      std::memcpy(to, row.data() + inside, static_cast<size_t>(bytes));
      at += bytes;
    }
  }
}

}  // namespace pm::parallel
