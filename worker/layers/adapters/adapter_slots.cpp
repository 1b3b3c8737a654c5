// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/adapters/adapter_slots.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "worker/ops/staging.h"
#include "worker/policy/roles.h"

namespace pm::layers {

namespace {

/// Steps of more rows multiply those of each adapter alone. Fewer rows are multiplied by all slots at once, and what
/// is not a row's own is masked: the factors are read once, which is what a decode step costs.
constexpr int64_t max_masked_rows = 64;

/// Returns the part of a factor that the slices describe, side by side along `dim`.
at::Tensor sliced(const at::Tensor& factor, const std::vector<policy::TensorSlice>& slices, int64_t dim) {
  std::vector<at::Tensor> parts;
  for (const policy::TensorSlice& slice : slices) {
    const at::Tensor rows =
        factor.slice(0, slice.row, slice.row + (slice.rows - 1) * slice.row_step + 1, slice.row_step);
    parts.push_back(rows.slice(1, slice.col, slice.col + (slice.cols - 1) * slice.col_step + 1, slice.col_step));
  }
  return parts.empty() ? factor.narrow(dim, 0, 0) : at::cat(parts, dim);
}

/// Returns this rank's part of a factor. It lies in the adapter's file as the matrix would lie in a checkpoint that
/// stores it row by row, with `shape` for its logical shape.
at::Tensor own_part(const policy::Param& param, Range range, std::vector<int64_t> shape, const at::Tensor& factor) {
  checkpoint::TensorInfo stored;
  stored.shape = factor.sizes().vec();
  policy::Param like = param;
  like.tensor = &stored;
  like.shape = std::move(shape);
  like.conv1d = false;
  return sliced(factor, policy::tensor_slices(like, range), policy::sharding_rule(param.role).dim == 1 ? 1 : 0);
}

std::string module_of(const policy::Param& param) {
  const std::string& name = param.tensor->name;
  return name.substr(0, name.rfind('.'));
}

}  // namespace

void AdapterRows::check(int64_t rows) const {
  if (rows != count)
    throw std::logic_error("a product of " + std::to_string(rows) + " rows has adapters for " + std::to_string(count));
}

AdapterSite::AdapterSite(std::span<const policy::Param* const> params, const policy::AdapterTargets& targets,
                         const AdapterCapacity& capacity, const Loader& loader, ops::Arena& arena,
                         const AdapterRows& rows)
    : rows_(rows),
      slots_(capacity.slots),
      rank_(capacity.rank),
      loaded_(static_cast<size_t>(capacity.slots) + 1, false) {
  const at::ScalarType type = loader.activation_type();
  int64_t first = 0, in = 0;
  for (const policy::Param* param : params) {
    const Range range = loader.range(*param);
    const std::vector<int64_t> shape = policy::local_shape(*param, range);
    const std::string module = module_of(*param);
    in = shape[1];
    if (targets.contains(module)) {
      const auto input = std::find(inputs_.begin(), inputs_.end(), module);
      const auto number = static_cast<size_t>(input - inputs_.begin());
      if (input == inputs_.end()) inputs_.push_back(module);
      parts_.push_back(
          {param, module, number, first, shape[0], range, arena.allocate({shape[0], slots_, rank_}, type).zero_()});
    }
    first += shape[0];
  }
  a_ = arena.allocate({slots_, static_cast<int64_t>(inputs_.size()), rank_, in}, type).zero_();
}

void AdapterSite::clear(int32_t slot) {
  loaded_.at(static_cast<size_t>(slot)) = false;
  a_.select(0, slot - 1).zero_();
  for (const Part& part : parts_) part.b.select(1, slot - 1).zero_();
}

void AdapterSite::load(int32_t slot, const std::string& module, const at::Tensor& a, const at::Tensor& b) {
  const int64_t rank = a.size(0);
  if (rank > rank_)
    throw std::logic_error("an adapter of rank " + std::to_string(rank) + " was loaded into slots of rank " +
                           std::to_string(rank_));
  for (const Part& part : parts_) {
    if (part.module != module) continue;
    const policy::Param& param = *part.param;
    const bool by_inputs = policy::sharding_rule(param.role).dim == 1;
    const at::Tensor own_a = by_inputs ? own_part(param, part.range, {rank, param.shape[1]}, a) : a,
                     own_b = by_inputs ? b : own_part(param, part.range, {param.shape[0], rank}, b);
    a_.select(0, slot - 1).select(0, static_cast<int64_t>(part.input)).narrow(0, 0, rank).copy_(own_a);
    part.b.select(1, slot - 1).narrow(1, 0, rank).copy_(own_b);
    loaded_.at(static_cast<size_t>(slot)) = true;
  }
}

bool AdapterSite::has(const std::string& module) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.module == module; });
}

void AdapterSite::add(const at::Tensor& x, const at::Tensor& y) const {
  const auto changes = [&](int32_t slot) { return static_cast<bool>(loaded_[static_cast<size_t>(slot)]); };
  if (y.numel() == 0 || std::none_of(rows_.used.begin(), rows_.used.end(), changes)) return;
  if (rows_.uniform) return add_slot(rows_.used[0], x, y);
  rows_.check(x.size(0));
  if (rows_.count <= max_masked_rows && rows_.used.size() > 1) return add_masked(x, y);
  for (const AdapterRows::Group& group : rows_.groups) {
    if (!changes(group.slot)) continue;
    if (!group.index.defined()) {
      add_slot(group.slot, x.narrow(0, group.first, group.count), y.narrow(0, group.first, group.count));
      continue;
    }
    const at::Tensor own = at::zeros({group.count, y.size(1)}, y.options());
    add_slot(group.slot, at::index_select(x, 0, group.index), own);
    at::Tensor all = y;
    all.index_add_(0, group.index, own);
  }
}

namespace {

/// y += h b^T, where y may have a type of more digits.
void add_product(at::Tensor y, const at::Tensor& h, const at::Tensor& b) {
  if (y.scalar_type() == h.scalar_type())
    y.addmm_(h, b.t());
  else
    y.add_(at::mm(h, b.t()));
}

}  // namespace

void AdapterSite::add_slot(int32_t slot, const at::Tensor& x, const at::Tensor& y) const {
  const at::Tensor h = at::mm(x.to(a_.scalar_type()), a_.select(0, slot - 1).flatten(0, 1).t());
  for (const Part& part : parts_) {
    if (part.outputs == 0) continue;
    add_product(y.narrow(1, part.first, part.outputs), h.narrow(1, static_cast<int64_t>(part.input) * rank_, rank_),
                part.b.select(1, slot - 1));
  }
}

void AdapterSite::add_masked(const at::Tensor& x, const at::Tensor& y) const {
  const int64_t rows = x.size(0), inputs = static_cast<int64_t>(inputs_.size());
  at::Tensor h = at::mm(x.to(a_.scalar_type()), a_.flatten(0, 2).t()).view({rows, slots_, inputs, rank_});
  h.masked_fill_(rows_.others.view({rows, slots_, 1, 1}), 0);
  for (const Part& part : parts_) {
    if (part.outputs == 0) continue;
    add_product(y.narrow(1, part.first, part.outputs),
                h.select(2, static_cast<int64_t>(part.input)).reshape({rows, slots_ * rank_}),
                part.b.view({part.outputs, slots_ * rank_}));
  }
}

namespace {

policy::AdapterTargets chosen_targets(const policy::Model& model, const AdapterCapacity& capacity) {
  policy::AdapterTargets targets = policy::adapter_targets(model);
  if (!capacity.modules.empty())
    std::erase_if(targets, [&](const auto& one) { return !capacity.modules.contains(one.first); });
  return targets;
}

policy::SavedTargets chosen_saved(const policy::Model& model, const AdapterCapacity& capacity) {
  policy::SavedTargets targets = policy::saved_targets(model);
  std::erase_if(targets, [&](const auto& one) { return !capacity.saved.contains(one.first); });
  return targets;
}

at::Tensor tensor_of(const Array& array) {
  const auto& values = std::get<std::vector<float>>(array.values);
  return at::from_blob(const_cast<float*>(values.data()), array.shape, at::kFloat);
}

}  // namespace

AdapterSlots::AdapterSlots(const policy::Model& model, const AdapterCapacity& capacity, at::Device device)
    : model_(model),
      capacity_(capacity),
      targets_(chosen_targets(model, capacity)),
      saved_targets_(chosen_saved(model, capacity)),
      device_(device),
      arena_(device) {}

std::shared_ptr<const AdapterSite> AdapterSlots::site(std::span<const policy::Param* const> params,
                                                      const Loader& loader) {
  if (std::none_of(params.begin(), params.end(),
                   [&](const policy::Param* param) { return targets_.contains(module_of(*param)); }))
    return nullptr;
  std::string storages;
  for (const policy::Param* param : params)
    storages += param->tensor->name + " " + (param->shares.empty() ? param->path : param->shares) + "\n";
  std::shared_ptr<AdapterSite>& site = sites_[storages];
  if (!site) site = std::make_shared<AdapterSite>(params, targets_, capacity_, loader, arena_, rows_);
  return site;
}

std::shared_ptr<const SavedSite> AdapterSlots::saved_site(const policy::Param& weight, const Loader& loader) {
  for (const auto& [module, target] : saved_targets_) {
    if (target.weight != &weight) continue;
    std::shared_ptr<SavedSite>& site = saved_sites_[module];
    if (!site) site = std::make_shared<SavedSite>(target, capacity_.saving_slots, loader, arena_, rows_);
    return site;
  }
  return nullptr;
}

void AdapterSlots::check_sites(std::span<const std::pair<std::string, Range>> layers) const {
  const auto is_here = [&](const policy::Param* param) {
    return std::any_of(layers.begin(), layers.end(), [&](const auto& one) {
      return one.first == param->stack && param->layer >= one.second.begin && param->layer < one.second.end;
    });
  };
  for (const auto& [module, target] : targets_) {
    if (!std::any_of(target.params.begin(), target.params.end(), is_here)) continue;
    const bool found =
        std::any_of(sites_.begin(), sites_.end(), [&](const auto& site) { return site.second->has(module); });
    if (!found) throw std::logic_error("adapters may change " + module + ", whose product has no place for them");
  }
  const auto begins_here = [&](const std::string& stack) {
    return std::any_of(layers.begin(), layers.end(), [&](const auto& one) {
      return one.first == stack && one.second.size() > 0 && one.second.begin == 0;
    });
  };
  const Range last = layers.back().second;
  const bool has_heads = last.size() > 0 && last.end == static_cast<int64_t>(model_.stacks.back().layers.size());
  for (const auto& [module, target] : saved_targets_)
    if ((target.is_table() ? begins_here(target.weight->stack) : has_heads) && !saved_sites_.contains(module))
      throw std::logic_error("adapters may replace " + module + ", whose product has no place for them");
}

void AdapterSlots::load(int32_t slot, const Arrays& factors) {
  if (slot < 1 || slot > capacity_.slots)
    throw std::logic_error("adapter slot " + std::to_string(slot) + " of " + std::to_string(capacity_.slots));
  if (!factors.empty() && factors.begin()->first.find('@') != std::string::npos) {
    for (const auto& [name, rows] : factors) load_saved(slot, name, rows);
    return;
  }
  for (const auto& [storages, site] : sites_) site->clear(slot);
  for (const auto& [module, site] : saved_sites_) site->clear(slot);
  for (const auto& [name, a] : factors) {
    if (!name.ends_with(".a")) continue;
    const std::string module = name.substr(0, name.size() - 2);
    const at::Tensor b = tensor_of(factors.at(module + ".b"));
    for (const auto& [storages, site] : sites_) site->load(slot, module, tensor_of(a), b);
  }
}

/// `name` is "MODULE.weight@ROW" or "MODULE.bias@ROW".
void AdapterSlots::load_saved(int32_t slot, const std::string& name, const Array& rows) {
  const size_t at = name.rfind('@'), dot = name.rfind('.', at);
  const std::string module = name.substr(0, dot);
  if (!saved_targets_.contains(module)) throw std::logic_error("no memory is kept for " + module + " of adapters");
  const auto site = saved_sites_.find(module);
  if (site == saved_sites_.end()) return;  // of another stage
  const int64_t first = std::stoll(name.substr(at + 1));
  if (name.compare(dot, at - dot, ".bias") == 0)
    site->second->load_bias(slot, first, tensor_of(rows));
  else
    site->second->load_weight(slot, first, tensor_of(rows));
}

void AdapterSlots::select_all(int32_t slot) {
  rows_ = {};
  if (slot > 0) rows_.used = {slot};
}

void AdapterSlots::select(std::span<const int32_t> slot_of_row) {
  if (std::all_of(slot_of_row.begin(), slot_of_row.end(), [&](int32_t slot) { return slot == slot_of_row[0]; }))
    return select_all(slot_of_row.empty() ? 0 : slot_of_row[0]);
  rows_ = {.uniform = false, .count = static_cast<int64_t>(slot_of_row.size())};
  std::map<int32_t, std::vector<int64_t>> rows_of;
  for (size_t row = 0; row < slot_of_row.size(); ++row)
    if (slot_of_row[row] > 0) rows_of[slot_of_row[row]].push_back(static_cast<int64_t>(row));
  for (const auto& [slot, rows] : rows_of) {
    rows_.used.push_back(slot);
    const auto count = static_cast<int64_t>(rows.size());
    AdapterRows::Group& group = rows_.groups.emplace_back();
    group = {.slot = slot, .first = rows.front(), .count = count};
    if (rows.back() - rows.front() + 1 != count) group.index = ops::to_device(at::tensor(rows, at::kLong), device_);
  }
  if (rows_.count > max_masked_rows) return;
  const at::Tensor slots = at::tensor(std::vector<int64_t>(slot_of_row.begin(), slot_of_row.end()), at::kLong);
  rows_.others = ops::to_device(slots.unsqueeze(1).ne(at::arange(1, capacity_.slots + 1)), device_);
}

}  // namespace pm::layers
