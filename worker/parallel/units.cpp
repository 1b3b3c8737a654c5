// See units.h.
#include "worker/parallel/units.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "planner/spread.h"

namespace pm::parallel {

using policy::Param;

namespace {

bool is_table(const Param& param) {
  const Axis axis = policy::rule_of(param.role).axis;
  return axis == Axis::Vocab || axis == Axis::Positions;
}

/// Cut parameters of a layer, which lie in its run.
bool in_run(const Param& param) { return param.layer >= 0 && policy::rule_of(param.role).axis != Axis::None && !is_table(param); }

std::string storage_of(std::span<const Param* const> params) {
  std::string storage;
  for (const Param* param : params) storage += (param->shares.empty() ? param->path : param->shares) + "\n";
  return storage;
}

}  // namespace

Units::Units(const policy::Model& model, const Plan& plan, int rank)
    : gathering_(plan.gathering.value()), compute_(compute_type(model.facts, plan.precision)), int8_(plan.precision == DType::I8), rank_(rank), ranks_(static_cast<int>(plan.ranks.size())), stacks_(model.stacks.size()), uses_(stacks_ + 1) {
  for (size_t i = 0; i < stacks_; ++i) stack_numbers_[model.stacks[i].name] = i;
  const std::vector<const Param*> params = model.params();
  for (const Param* param : params) owners_[param->path] = param;
  for (const Param* param : params) {
    if (param->shares.empty()) continue;
    const Param& first = owner(*param);
    if (param->stack != first.stack || param->layer != first.layer) shared_.insert(first.path);
  }
  for (const Param* param : params) {
    if (param->shares.empty() && in_run(*param) && !shared_.contains(param->path)) with_own_.insert({param->stack, param->layer});
  }
}

const Param& Units::owner(const Param& param) const { return param.shares.empty() ? param : *owners_.at(param.shares); }

/// As planner/spread.h says.
bool Units::held_by_all(const Param& owner) const {
  if (is_table(owner)) return false;
  return !in_run(owner) || (shared_.contains(owner.path) && with_own_.contains({owner.stack, owner.layer}));
}

std::optional<layers::Weight> Units::keep(std::span<const Param* const> params, layers::Access access) {
  const Param& first = owner(*params[0]);
  for (const Param* param : params) {
    if (held_by_all(owner(*param)) != held_by_all(first)) throw std::logic_error(param->path + " is kept otherwise than " + params[0]->path + ", below which it lies");
  }
  if (held_by_all(first)) return std::nullopt;
  const std::string storage = storage_of(params);
  const auto [known, fresh] = known_.try_emplace(storage, static_cast<int>(weights_.size()));
  if (fresh) {
    Kept& weight = weights_.emplace_back();
    weight.params.assign(params.begin(), params.end());
    weight.run = run_of(first, storage);
    const bool numbers = int8_ && params[0]->matrix && !params[0]->keep;
    weight.type = numbers ? at::kChar : layers::scalar_type(params[0]->keep ? params[0]->dtype : compute_);
    if (numbers) weight.group = policy::scale_group(*params[0]);
    weight.shape = params[0]->shape;
    for (const Param* param : params.subspan(1)) weight.shape[0] += param->shape[0];
    runs_[weight.run].weights.push_back(known->second);
  }
  const auto stack = stack_numbers_.find(params[0]->stack);
  uses_[stack == stack_numbers_.end() ? stacks_ : stack->second].push_back({known->second, access == layers::Access::LookUp});
  const Kept& weight = weights_[static_cast<size_t>(known->second)];
  return layers::Weight(*gatherer_, known->second, weight.shape, weight.type);
}

/// Each table is one of its own, layers have one for all that they keep.
size_t Units::run_of(const Param& owner, const std::string& storage) {
  const std::string name = is_table(owner) ? "\n" + storage : owner.stack + "/" + std::to_string(owner.layer);
  const auto [found, fresh] = run_numbers_.try_emplace(name, runs_.size());
  if (fresh) runs_.push_back({is_table(owner), {}, 0, {}, {}});
  return found->second;
}

void Units::load(layers::Loader& loader) {
  lay_out();
  divide();
  for (size_t number = 0; number < runs_.size(); ++number) {
    KeptRun& run = runs_[number];
    const int64_t row = run.table ? weight(run.weights[0]).row_bytes : 1;
    run.part = run.table ? part_of_table(weight(run.weights[0]).shape[0], rank_, ranks_) : part_of_run(run.bytes, rank_, ranks_);
    if (!in_files()) run.kept = part_in_memory(loader, number, run.part.begin * row, run.part.end * row);
  }
}

/// Bytes [begin, end) of a run where this rank keeps them: on its device, or in the host's memory, from where copies to the device run beside its work.
at::Tensor Units::part_in_memory(layers::Loader& loader, size_t run, int64_t begin, int64_t end) const {
  const bool on_host = gathering_.from == Residency::HostMemory && !loader.device().is_cpu();
  at::Tensor kept = on_host ? ops::pinned(end - begin) : loader.allocate({end - begin}, at::kByte);
  if (kept.is_cpu()) {
    read(loader, run, begin, end, static_cast<std::byte*>(kept.mutable_data_ptr()));
    return kept;
  }
  for (int64_t at = begin; at < end; at += ops::Staging::buffer_bytes) {
    const int64_t bytes = std::min(ops::Staging::buffer_bytes, end - at);
    loader.put(kept.narrow(0, at - begin, bytes), at::kByte, [&](std::span<std::byte> out) { read(loader, run, at, at + bytes, out.data()); });
  }
  return kept;
}

at::Tensor Units::kept_rows(int number) const {
  const Kept& table = weight(number);
  const KeptRun& run = runs_[table.run];
  return run.kept.view({run.part.size(), table.row_bytes});
}

layers::Weight Units::rows_of(int number, const at::Tensor& bytes) const {
  const Kept& weight = this->weight(number);
  std::vector<int64_t> shape = weight.shape;
  shape[0] = bytes.numel() / weight.row_bytes;
  if (weight.group > 0) return layers::Weight(ops::int8_rows(bytes.view({shape[0], weight.row_bytes}), shape[1], weight.group));
  return layers::Weight(bytes.view({-1}).view(weight.type).view(shape));
}

void Units::read_rows(layers::Loader& loader, int number, Range rows, std::byte* out) const {
  const Kept& weight = this->weight(number);
  if (weight.group > 0) return loader.read_int8(weight.params, rows, out);
  std::vector<int64_t> shape = weight.shape;
  shape[0] = rows.size();
  loader.read(weight.params, rows, at::from_blob(out, shape, at::TensorOptions(weight.type)));
}

/// Where each weight lies in its run.
void Units::lay_out() {
  for (Kept& weight : weights_) {
    const auto element = static_cast<int64_t>(c10::elementSize(weight.type));
    weight.row_bytes = weight.group > 0 ? ops::int8_row_bytes(weight.shape[1], weight.group) : std::accumulate(weight.shape.begin() + 1, weight.shape.end(), element, std::multiplies<>());
    weight.bytes = weight.shape[0] * weight.row_bytes;
  }
  for (KeptRun& run : runs_) {
    std::stable_sort(run.weights.begin(), run.weights.end(), [&](int a, int b) { return c10::elementSize(weight(a).type) > c10::elementSize(weight(b).type); });
    for (const int number : run.weights) {
      weights_[static_cast<size_t>(number)].offset = run.bytes;
      run.bytes += weight(number).bytes;
    }
  }
}

void Units::divide() {
  for (size_t number = 0; number < runs_.size(); ++number) {
    const KeptRun& run = runs_[number];
    const bool whole = run.bytes <= gathering_.buffer;
    for (const int weight : run.weights) {
      if (whole) weights_[static_cast<size_t>(weight)].units = {static_cast<int>(units_.size())};
      else divide(weight);
    }
    if (whole) units_.push_back({number, 0, run.bytes});
  }
}

/// A matrix that shares no unit with others, in as many rows at a time as fit.
void Units::divide(int number) {
  Kept& weight = weights_[static_cast<size_t>(number)];
  const int64_t fit = gathering_.buffer / weight.row_bytes;
  if (fit < 1) {
    throw std::logic_error("a row of " + weight.params[0]->path + " has " + std::to_string(weight.row_bytes) + " bytes, a buffer of the plan " + std::to_string(gathering_.buffer));
  }
  for (int64_t row = 0; row < weight.shape[0]; row += fit) {
    weight.units.push_back(static_cast<int>(units_.size()));
    units_.push_back({weight.run, weight.offset + row * weight.row_bytes, weight.offset + std::min(row + fit, weight.shape[0]) * weight.row_bytes});
  }
}

std::vector<Stop> Units::route(Places places) const {
  std::vector<Stop> stops;
  const auto add = [&](const std::vector<Use>& uses) {
    for (const auto& [number, look_up] : uses) {
      if (look_up) stops.push_back({true, number});
      for (const int unit : look_up ? std::vector<int>{} : weight(number).units) {
        if (stops.empty() || stops.back() != Stop{false, unit}) stops.push_back({false, unit});   // what is there already does not come again
      }
    }
  };
  for (size_t stack = 0; stack < stacks_; ++stack) {
    if (places & of_stack(stack)) add(uses_[stack]);
  }
  for (const Places head : {best(), scores()}) {
    if (places & head) add(uses_[stacks_]);
  }
  return stops;
}

Range Units::part_of(int number, int rank) const {
  const KeptUnit& unit = this->unit(number);
  const KeptRun& run = runs_[unit.run];
  if (in_files()) return part_of_run(unit.end - unit.begin, rank, ranks_);
  Range part = run.table ? part_of_table(weight(run.weights[0]).shape[0], rank, ranks_) : part_of_run(run.bytes, rank, ranks_);
  const int64_t row = run.table ? weight(run.weights[0]).row_bytes : 1;
  const int64_t begin = std::clamp(part.begin * row, unit.begin, unit.end), end = std::clamp(part.end * row, begin, unit.end);
  return {begin - unit.begin, end - unit.begin};
}

void Units::read(layers::Loader& loader, size_t run, int64_t begin, int64_t end, std::byte* out) const {
  std::vector<std::byte> row;   // of which only a part is wanted
  for (const int number : runs_[run].weights) {
    const Kept& weight = this->weight(number);
    int64_t at = std::max(begin, weight.offset) - weight.offset;
    const int64_t last = std::min(end, weight.offset + weight.bytes) - weight.offset;
    while (at < last) {
      const int64_t first = at / weight.row_bytes, inside = at % weight.row_bytes, rows = inside > 0 ? 0 : (last - at) / weight.row_bytes;
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
